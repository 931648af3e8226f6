"""The Kubernetes API of Wattloop: typed models, from which the CustomResourceDefinitions are generated.

A file a kind (`recurring_training_job`, `training_recurrence`, `gpu_power_policy`, `frequency_plan`), a file a part of
a kind where the part is an idea of its own (`trigger`, `objective`, `batch_size`, `policy`, `power`, `template`).
Imports nothing of ours but the client.
"""
