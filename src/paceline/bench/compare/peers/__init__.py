"""The engines that `paceline bench compare` knows: how each is installed and how it runs a workload."""
