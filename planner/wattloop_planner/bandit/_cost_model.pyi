from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector

def normal_cdf(x: float, /) -> float: ...
def log_normal_cdf(x: float, /) -> float: ...
def log_limit_factor(log_epochs: float, spread: float, log_limit: float, /) -> float: ...
def condition_mixture(
    means: Matrix, covariance: Matrix, values: Vector, precisions: Vector, mean: Vector, posterior: Matrix, /
) -> bool: ...
def expected_costs(
    log_cost: Vector,
    covariance: Matrix,
    log_epochs: Vector,
    epochs_covariance: Matrix,
    noise_sd: float,
    log_limit: float,
    moments: Matrix,
    /,
) -> bool: ...
def knowledge_gain(
    log_cost: Vector,
    covariance: Matrix,
    log_epochs: Vector,
    epochs_covariance: Matrix,
    noise_sd: float,
    log_limit: float,
    moments: Matrix,
    is_limited: bool,
    offered: Flags,
    incumbent: int,
    arm: int,
    spread: float,
    rule: Vector,
    /,
) -> float: ...
def best_stop(
    stops: Vector,
    mean: float,
    spread: float,
    failing: float,
    horizon: float,
    paid: float,
    limit: float,
    max_stop: float,
    retry: float,
    /,
) -> tuple[float, float]: ...
def probe_option(
    stops: Vector,
    mean: float,
    spread: float,
    failing: float,
    horizon: float,
    limit: float,
    max_stop: float,
    retry: float,
    log_epoch_cost: float,
    epoch_cost_sd: float,
    rule: Vector,
    /,
) -> float: ...
