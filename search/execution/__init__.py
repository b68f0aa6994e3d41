"""Execution of trials: Ray, its Tune, and warm worker groups.

Who notices that a process is dead or silent. T is `trainables.contract.timeout_seconds` (120 s), a rank is one process
of a trial. Of the watchers of a rank the first one ends the group; one bad rank never costs more than its own trial.

| Watcher | Watches | How | Notices after | Then |
| --- | --- | --- | --- | --- |
| Ray Train's controller | processes of ranks | health check | 1 s; 10 s on a lost node | trial is retried once |
| Ray Train's controller | groups that wait for nodes | timeout | 180 s | group is dead |
| `Group._poll` | processes of ranks | calls them | T | trial fails, names the rank |
| `Group._end_unreported` | ranks of an epoch | one has reported it | T | trial fails, names the silent ranks |
| `Group._end_stragglers` | ranks of a task | one has ended it | 10 s after a failure, else T | `attribute_failure` |
| `hang_detector` in the rank | its own work | CPU time, bytes moved | T without any | trial fails, names the rank |
| `torch.distributed` | messages of ranks | timeout, closed connection | T, at once | the rank fails as `peer_lost` |
| the trainable's loaders | loader processes | `HelperLostError` | seconds | trial is retried once |
| `oom.py` | kernel's kills in this control group | its count has grown | at a death | trial is infeasible, no retry |
| `WorkerPool._follow_nodes` | nodes of a cluster | `ray.nodes()` | about 10 s | leases wait T, then the trial fails |
| `Group.wait_until_ready`, `.close` | groups that start or end | timeout | 180 s, 30 s | group is killed |
| `PoolClient.stop` | stopped trials | timeout | 30 s | group is killed |
| Ray Tune | actors of trials | Ray | seconds | trial fails (no memory: infeasible), `end_lease` kills its group |
| `RayLossCheck` in the driver | Ray itself | process, or port | 1 s, 3 failed connects | run ends |
"""
