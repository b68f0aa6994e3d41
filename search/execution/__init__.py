"""How trials run: Ray, its Tune, warm worker groups, and what happens when one of them dies or hangs."""
