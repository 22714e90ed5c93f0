# A node of a Ray cluster, on top of an image of the service:
# docker build -f deploy/docker/ray.Dockerfile --build-arg BASE=lensbox:0.1.0-cuda -t lensbox:0.1.0-ray .

ARG BASE=lensbox:0.1.0-cpu
# hadolint ignore=DL3006
FROM ${BASE}
USER 0:0
# KubeRay's probes use wget.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir "ray[serve]==2.60.0"
ENV RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=lensbox.serve.ray_proxy:middlewares RAY_USAGE_STATS_ENABLED=0 HOME=/tmp
# KubeRay before 1.4 starts Ray from a login shell, which resets PATH.
RUN echo "PATH=/opt/lensbox/bin:\$PATH" > /etc/profile.d/lensbox.sh
USER 10001:10001
# KubeRay sets the command, and its probes check the health.
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["ray", "--help"]
