# Pullback in a container: `docker build --target cpu .` or `--target gpu`. docker-compose.yml shows how to run it.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS compiler
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*
# The service cannot write bytecode. Compiled one after the other, without times, the same modules have the same.
ENV PYTHONHASHSEED=0 \
    COMPILE="import compileall as c, os, py_compile as p; c.compile_dir(os.getcwd(), force=True, quiet=2, invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
WORKDIR /pullback
COPY Makefile pyproject.toml ./

# The common part of both images, without the installed packages. The user owns no files and only logs to stderr.
FROM ${PYTHON_IMAGE} AS service
# The time of a release: useradd writes the day into /etc/shadow.
ARG SOURCE_DATE_EPOCH
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin pullback \
    && mkdir /ops-extra \
    && install --directory --owner=pullback --mode=700 /data \
    && printf '#!/bin/sh\nexec python -m pullback "$@"\n' >/usr/local/bin/pullback \
    && chmod 755 /usr/local/bin/pullback
ENV PATH=/pullback/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/pullback \
    PULLBACK_HOST=0.0.0.0 \
    PULLBACK_PORT=8000 \
    PULLBACK_OPS_PATH=/ops-extra \
    PULLBACK_DATA=/data
# It survives a restart of the container: what clients have left behind, and what crashed the service.
VOLUME /data
WORKDIR /pullback
USER pullback
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-S", "-c", "import http.client as h, os, ssl, sys; a, e = '127.0.0.1', os.environ; p = int(e['PULLBACK_PORT']); c = h.HTTPSConnection(a, p, timeout=4, context=ssl._create_unverified_context()) if e.get('PULLBACK_TLS_CERT') else h.HTTPConnection(a, p, timeout=4); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]
CMD ["python", "-m", "app"]
LABEL org.opencontainers.image.title="Pullback" \
      org.opencontainers.image.description="Gradient evaluation over HTTP: TensorFlow ops with custom gradients, served and proved right" \
      org.opencontainers.image.licenses="Apache-2.0"

# Slow steps come first, so that a change to app/ or ops/*.py does not repeat them: the pinned dependencies, then the
# C++ ops. Files that only the build needs are removed: TensorFlow's headers, the clang library that it requires, uv, pip.
FROM compiler AS build-cpu
COPY requirements/uv.txt requirements/cpu.txt requirements/otel.txt requirements/
RUN make .venv/.installed-cpu .venv/.installed-otel
COPY ops/*.cc ops/
RUN make native \
    && rm -rf .venv/bin/pip* .venv/bin/uv* \
    && cd .venv/lib/python3*/site-packages \
    && rm -rf tensorflow/include clang/native pip pip-* uv uv-* \
    && python -c "$COMPILE"

FROM service AS cpu
COPY --from=build-cpu /pullback/.venv .venv
COPY --from=build-cpu /pullback/build build
COPY pullback pullback
COPY app app
COPY ops ops
ARG VERSION=0.4.0.dev0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"

FROM compiler AS build-gpu
COPY requirements/uv.txt requirements/gpu.txt requirements/otel.txt requirements/
RUN make .venv/.installed-gpu .venv/.installed-otel
COPY ops/*.cc ops/
RUN make native BUILD=gpu \
    && rm -rf .venv/bin/pip* .venv/bin/uv* \
    && cd .venv/lib/python3*/site-packages \
    && rm -rf tensorflow/include clang/native pip pip-* uv uv-* \
    && python -c "$COMPILE"

FROM service AS gpu
COPY --from=build-gpu /pullback/.venv .venv
# CUDA's libraries are in NVIDIA's wheels, where the loader does not search by default.
USER root
RUN printf '%s\n' /pullback/.venv/lib/python3*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/pullback.conf \
    && ldconfig \
    && rm /var/cache/ldconfig/aux-cache
USER pullback
COPY --from=build-gpu /pullback/build build
COPY pullback pullback
COPY app app
COPY ops ops
ARG VERSION=0.4.0.dev0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"

# The last stage is the default target.
FROM cpu
