"""The Kubernetes API of Wattloop: typed models from which the CustomResourceDefinitions are generated.

Each kind has a module: `recurring_training_job`, `training_recurrence`, `gpu_power_policy` and `frequency_plan`. Larger
parts of a kind have their own: `cron`, `objective`, `batch_size`, `policy`, `power`, `template` and `attempt`. The
package imports no other package of Wattloop than the client.
"""
