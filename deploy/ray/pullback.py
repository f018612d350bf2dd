"""The service as a deployment of Ray Serve: ``serve run deploy.ray.pullback:app most=8``, in a clone of Pullback.

Each replica runs the application of ``python -m app``, with the same ``PULLBACK_*`` settings. Ray's proxy takes the
place of the server, so the settings of addresses, TLS, workers, draining and the fast path have no effect.
"""

from fastapi import FastAPI
from pydantic import BaseModel, Field
from ray import get_runtime_context, serve


class Arguments(BaseModel):
    """What each replica gets, how many there are, and the requests in flight for each at which there are more."""

    cpus: float = Field(2, gt=0)
    gpus: float = Field(0, ge=0)
    least: int = Field(1, ge=0)
    most: int = Field(10, ge=1)
    target: float = Field(2, gt=0)


def application() -> FastAPI:
    """Build the application, in the replica: nothing of TensorFlow is pickled."""
    # Imported here, so that the process that deploys does not need TensorFlow.
    from app.main import create_app
    from app.runtime.cores import share_cores, usable_cores
    from app.settings import Settings

    # TensorFlow would take all cores of the node.
    assigned = get_runtime_context().get_assigned_resources().get("CPU", 1)
    replicas = max(1, int(usable_cores() / assigned))
    share_cores(replicas, replicas)
    # Checks run in the replica: Ray would not know of separate processes. Its port is that of Ray's proxy.
    return create_app(Settings().model_copy(update={"check_processes": 0, "port": 0}))


@serve.deployment(
    # So many requests at once fill batches; the others wait in Ray, for whichever replica is free first.
    max_ongoing_requests=64,
    max_queued_requests=1024,
    health_check_period_s=5,
    health_check_timeout_s=10,
    # As PULLBACK_GRACE_S. A replica that stops gets no new requests, and first answers those that it has.
    graceful_shutdown_timeout_s=25,
)
@serve.ingress(application)
class Pullback:
    """A replica. Ray replaces one that is not healthy, or whose process has ended."""

    async def check_health(self) -> None:
        """Raise an error while a computation is stuck; nothing else makes a replica unready."""
        self.app.state.engine.need_ready()


def app(arguments: Arguments) -> serve.Application:
    """Return the application of Ray Serve for these arguments."""
    scaling = {"min_replicas": arguments.least, "max_replicas": arguments.most}
    actor = {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus}
    autoscaling = {**scaling, "target_ongoing_requests": arguments.target, "upscale_delay_s": 10}
    return Pullback.options(ray_actor_options=actor, autoscaling_config=autoscaling).bind()
