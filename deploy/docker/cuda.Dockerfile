# The service on NVIDIA GPUs: docker build -f deploy/docker/cuda.Dockerfile -t lensbox:0.1.0-cuda .
# Run it with the NVIDIA container toolkit: docker run --gpus all

# The CUDA version that torch was built with.
ARG CUDA=13.0.2
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libjpeg-dev libpng-dev python3-dev \
    python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH
# This torch installs cuDNN, cuBLAS and the CUDA runtime as Python packages.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu130
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH" \
 && pip install --no-cache-dir "cmake>=3.26" ninja numpy "scikit-build-core>=0.11"
COPY . /source
# Fewer architectures build faster: --build-arg ARCHITECTURES=90-real
ARG ARCHITECTURES="75-real;80-real;86-real;89-real;90-real;100-real;120"
# Without build isolation, so that the op library is built against the installed torch.
RUN pip install --no-cache-dir --no-build-isolation \
    --config-settings=cmake.define.LENSBOX_CUDA=ON \
    --config-settings=cmake.define.LENSBOX_CUDA_ARCHITECTURES="$ARCHITECTURES" "/source[serve]" \
 && pip uninstall --yes cmake ninja scikit-build-core \
 && lensbox info

FROM nvidia/cuda:${CUDA}-base-ubuntu24.04 AS service
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends libjpeg-turbo8 libpng16-16t64 python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/lensbox /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH PYTHONUNBUFFERED=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin lensbox
USER 10001:10001
WORKDIR /models
EXPOSE 8000
# The container is healthy while /livez answers 200. Load balancers use /readyz. With HTTPS or another port: --health-cmd.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
STOPSIGNAL SIGTERM
# The artifact is not in the image: mount its folder at /models.
ENTRYPOINT ["lensbox", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--artifact", "/models/detector.pt", "--device", "cuda"]

# A node of a Ray cluster: docker build -f deploy/docker/cuda.Dockerfile --target ray -t lensbox:0.1.0-ray .
FROM service AS ray
USER 0:0
# The probes of KubeRay use wget for older versions of Ray.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir "ray[serve]==2.60.0"
USER 10001:10001
ENV RAY_USAGE_STATS_ENABLED=0 HOME=/tmp
# KubeRay sets the command and checks the health.
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["ray", "--help"]

# Without --target: the service.
FROM service
