"""Export of a run to optuna-dashboard and TensorBoard."""
