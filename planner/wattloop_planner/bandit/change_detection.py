"""Detection of a change of regime: its settings, and the training that observations were made with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattloop_planner.observations import Observation


@dataclass(frozen=True)
class ChangeDetection:
    """Detection of a change of regime by two one-sided cumulative sums (CUSUM) of standardised residuals.

    Attributes:
        allowance: Residual that adds nothing to a sum, in standard deviations.
        threshold: Sum at which older runs belong to another regime; infinity disables detection.
        max_residual: Bound of a single residual.
        head_start: Least value of both sums after the first change of the training's image or template
            (Lucas and Crosier 1982: half of the threshold). After the n-th one that no detected change
            followed, it is a n-th of this value.
    """

    allowance: float = 1.0
    threshold: float = 6.0
    max_residual: float = 4.0
    head_start: float = 3.0


@dataclass(frozen=True)
class TrainingIdentity:
    """The latest known template and image of a job.

    Attributes:
        template_digest: Digest of the template; empty if unknown.
        image_digest: Digest of the image; empty if unknown.
        changes: How often one of them, or both, differed from the one before since the count began.
    """

    template_digest: str = ""
    image_digest: str = ""
    changes: int = 0

    def after(self, observation: Observation) -> TrainingIdentity:
        """The identity after an attempt. An unknown digest is no change.

        Example:
            >>> from wattloop_planner.observations import Outcome
            >>> run = Observation(0, 0, 32, Outcome.REACHED, 5.0, 100.0, 10.0, 300.0, image_digest="sha256:a")
            >>> first = TrainingIdentity().after(run)
            >>> first.changes, first.after(replace(run, image_digest="")).changes
            (0, 0)
            >>> first.after(replace(run, image_digest="sha256:b")).changes
            1
        """
        if observation.from_other_job or not (observation.template_digest or observation.image_digest):
            return self
        known = (self.template_digest, self.image_digest)
        seen = (observation.template_digest, observation.image_digest)
        changed = any(one and other and one != other for one, other in zip(known, seen, strict=True))
        template, image = (new or old for new, old in zip(seen, known, strict=True))
        return replace(self, template_digest=template, image_digest=image, changes=self.changes + changed)
