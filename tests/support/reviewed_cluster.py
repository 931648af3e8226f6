"""An API server that reviews tokens and rights and lists jobs and recurrences, as a transport in virtual time."""

import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from support.control_plane.signed_tokens import public_key, signed_token
from support.databases.many_jobs import LONGEST, NAMESPACE, job_body, running_recurrence
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import (
    GPU_NODES,
    RECURRING_TRAINING_JOBS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    TRAINING_RECURRENCES,
)
from wattloop_operator.cluster.api_transport import Request, StatusError

OTHERS = "others"
KEYS_PATH = "/openid/v1/jwks"


class ReviewedCluster:
    """The namespace `NAMESPACE` with a job that runs, `OTHERS` with another one, and their viewers.

    Attributes:
        users: The users of the valid tokens.
        rights: The namespaces that each user may list; "" is all of them.
        refused: The namespaces that the page itself may not list; "" is what has none.
        gpu_nodes: The GPUNodes; of the users, root alone may list them.
        unreviewed: The kinds of which a review of rights fails.
        reviews: How many reviews of each kind were asked for.
        key: Signs the tokens of service accounts.
        review_seconds: How long a review takes.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.users = {"ours": "ann", "theirs": "bob", "all": "root", "none": "eve"}
        self.rights = {"ann": {NAMESPACE}, "bob": {OTHERS}, "root": {""}, "eve": set()}
        self.refused: set[str] = set()
        self.reviews = {TOKEN_REVIEWS.path(): 0, SUBJECT_ACCESS_REVIEWS.path(): 0}
        ours, theirs, running = job_body(LONGEST), job_body("theirs"), running_recurrence(LONGEST)
        theirs["metadata"]["namespace"] = OTHERS
        # It claims to be of the job of another namespace.
        forged = running_recurrence(LONGEST)
        forged["metadata"] |= {"name": "forged", "namespace": OTHERS, "uid": "forged"}
        self.jobs, self.recurrences = [ours, theirs], [running, forged]
        self.gpu_nodes: list[dict[str, Any]] = []
        self.unreviewed: set[str] = set()
        self.key = generate_private_key(SECP256R1())
        self.review_seconds = 0.0
        for each in (*self.jobs, *self.recurrences):
            each["metadata"]["resourceVersion"] = "1"

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.path in self.reviews:
            self.reviews[request.path] += 1
            time.sleep(self.review_seconds)
            spec = dict(request.body or {})["spec"]
            is_token = request.path == TOKEN_REVIEWS.path()
            return {"status": self._token_review(spec) if is_token else self._access_review(spec)}
        if request.path == KEYS_PATH:
            return {"keys": [public_key(self.key)]}
        parts = request.path.split("/")
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        if namespace in self.refused:
            message = f'User "system:serviceaccount:home:ui" cannot list resource in the namespace "{namespace}"'
            raise StatusError(request, 403, "Forbidden", message)
        bodies = {
            RECURRING_TRAINING_JOBS.plural: self.jobs,
            TRAINING_RECURRENCES.plural: self.recurrences,
            GPU_NODES.plural: self.gpu_nodes,
        }[parts[-1]]
        found = [each for each in bodies if not namespace or namespace == each["metadata"]["namespace"]]
        page = {"metadata": {"resourceVersion": "1"}, "items": found}
        answer: dict[str, Any] = request.parse(json.dumps(page, separators=(",", ":")).encode())
        return answer

    def account(self, namespace: str, name: str, *namespaces: str) -> str:
        """The signed token of a service account that may list these namespaces."""
        user = f"system:serviceaccount:{namespace}:{name}"
        token = signed_token({"sub": user}, self.key)
        self.users[token] = user
        self.rights[user] = set(namespaces)
        return token

    def add_namespaces(self, count: int) -> None:
        """Add namespaces with a job each, which only `root` may list."""
        for number in range(count):
            job = job_body(f"job-of-{number}")
            job["metadata"] |= {"namespace": f"further-{number:04}", "resourceVersion": "1"}
            self.jobs.append(job)

    def _token_review(self, spec: dict[str, Any]) -> dict[str, Any]:
        name = self.users.get(spec["token"])
        return {"authenticated": name is not None, "user": {"username": name, "groups": ["system:authenticated"]}}

    def _access_review(self, spec: dict[str, Any]) -> dict[str, Any]:
        assert spec["groups"] == ["system:authenticated"]
        assert spec["resourceAttributes"]["verb"] == "list"
        if spec["resourceAttributes"]["resource"] in self.unreviewed:
            raise OperationError("the review failed")
        return {"allowed": spec["resourceAttributes"]["namespace"] in self.rights[spec["user"]]}
