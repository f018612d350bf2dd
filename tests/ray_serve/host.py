"""Ray on this machine, with deploy/ray: ``python -m tests.ray_serve.host PORT NAME``, in Ray's environment.

It prints a line when the deployment is ready. Then it does what each line of its input says, and prints how many
replicas run: ``count`` does no more, ``again`` replaces all replicas, as a deployment of another version does. It ends
with its input.
"""

import sys
import tempfile

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from deploy.ray.pullback import Arguments, Pullback, app

# How many cores Ray may assume: two would be too few for three replicas.
CORES = 8
HOST = "127.0.0.1"
ANSWER = "answer: "


def say(what: object) -> None:
    """Print an answer. Ray itself prints other lines now and then."""
    print(f"{ANSWER}{what}", flush=True)


def running(name: str) -> int:
    """Return how many replicas run."""
    return serve.status().applications[name].deployments["Pullback"].replica_states.get("RUNNING", 0)


def quick(version: int) -> serve.Application:
    """Return the same deployment, which follows its load within seconds."""
    autoscaling = {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 4}
    delays = {"upscale_delay_s": 1, "downscale_delay_s": 3, "look_back_period_s": 3}
    actor = {"num_cpus": 1, "runtime_env": {"env_vars": {"VERSION_OF_THE_TEST": str(version)}}}
    return Pullback.options(ray_actor_options=actor, autoscaling_config={**autoscaling, **delays}).bind()


def main(port: str, name: str) -> None:
    """Deploy, and obey."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(
            address="local",
            num_cpus=CORES,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address=HOST,
            _temp_dir=folder,
        )
        serve.start(http_options=HTTPOptions(host=HOST, port=int(port)))
        serve.run(app(Arguments(cpus=1, least=1, most=3)), name=name)
        say("ready")
        for version, line in enumerate(sys.stdin):
            if line == "again\n":
                serve.run(quick(version), name=name)
            say(running(name))
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
