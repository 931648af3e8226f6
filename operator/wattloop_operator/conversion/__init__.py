"""Converts the manifest of a cron kind, such as a CronJob, to that of a RecurringTrainingJob."""
