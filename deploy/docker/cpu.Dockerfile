# The service on CPUs: docker build -f deploy/docker/cpu.Dockerfile -t lensbox:0.1.0-cpu .

FROM python:3.12-slim-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH
# PyPI's torch for Linux brings gigabytes for GPUs; this one does not.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH" \
 && pip install --no-cache-dir "cmake>=3.26" ninja numpy "scikit-build-core>=0.11"
COPY . /source
# The op library is built against the very torch that it will run with, hence without build isolation.
RUN pip install --no-cache-dir --no-build-isolation \
    --config-settings=cmake.define.LENSBOX_CUDA=OFF "/source[serve,onnx]" \
 && pip uninstall --yes cmake ninja scikit-build-core \
 && lensbox info

FROM python:3.12-slim-bookworm
COPY --from=build /opt/lensbox /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin lensbox
USER 10001:10001
WORKDIR /models
EXPOSE 8000
# As long as /healthz answers 200; whether it should get requests is for /readyz to say.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-m", "lensbox.serve.health_check"]
STOPSIGNAL SIGTERM
# The artifact is no part of the image: mount its folder at /models.
ENTRYPOINT ["lensbox", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--artifact", "/models/detector.pt", "--device", "cpu"]
