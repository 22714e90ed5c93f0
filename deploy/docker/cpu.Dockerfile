# The service on CPUs: docker build -f deploy/docker/cpu.Dockerfile -t lensbox:0.1.0-cpu .

FROM python:3.12-slim-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libjpeg-dev libpng-dev \
 && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH
# The CPU build of torch: PyPI's torch for Linux has gigabytes of GPU libraries.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH" \
 && pip install --no-cache-dir "cmake>=3.26" ninja numpy "scikit-build-core>=0.11"
COPY . /source
# Without build isolation, so that the op library is built against the installed torch.
RUN pip install --no-cache-dir --no-build-isolation \
    --config-settings=cmake.define.LENSBOX_CUDA=OFF "/source[serve,onnx]" \
 && pip uninstall --yes cmake ninja scikit-build-core \
 && lensbox info

FROM python:3.12-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends libjpeg62-turbo libpng16-16 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/lensbox /opt/lensbox
ENV PATH=/opt/lensbox/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin lensbox
USER 10001:10001
WORKDIR /models
EXPOSE 8000
# The container is healthy while /livez answers 200. Load balancers use /readyz. With HTTPS or another port: --health-cmd.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
STOPSIGNAL SIGTERM
# The artifact is not in the image: mount its folder at /models.
ENTRYPOINT ["lensbox", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--artifact", "/models/detector.pt", "--device", "cpu"]
