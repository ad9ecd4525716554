# The operator, and the vLLM plugin unpacked for an init container to copy (`evictune wire`).
#
#   docker build -t evictune .
#
# Behind a package mirror: --build-arg PIP_INDEX_URL=... and, with a certificate authority of its
# own, mount the bundle and name it by --build-arg PIP_CERT=... Any base image with Python 3.11 or
# newer, its venv module and cp serves as BASE_IMAGE.

ARG BASE_IMAGE=docker.io/library/python:3.12-slim

FROM ${BASE_IMAGE} AS build
ARG PIP_CERT
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python3 -m venv /opt/build \
 && /opt/build/bin/pip install --quiet 'setuptools>=77' wheel \
 && python3 -m venv --without-pip /opt/evictune/venv
# The dependencies change less often than the sources: a layer of their own.
COPY constraints/operator.txt constraints/operator.txt
RUN /opt/build/bin/pip --python /opt/evictune/venv/bin/python install --quiet \
      --requirement constraints/operator.txt
COPY operator operator
COPY policies policies
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist \
      ./operator ./policies \
 && /opt/build/bin/pip --python /opt/evictune/venv/bin/python install --quiet --no-deps \
      /dist/evictune-[0-9]*.whl \
 && /opt/build/bin/pip install --quiet --no-deps --target /opt/evictune/plugin \
      /dist/evictune_policies-*.whl

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="evictune" \
      org.opencontainers.image.description="Tunes how vLLM evicts KV-cache blocks, in a closed loop against a TTFT target" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/evictune /opt/evictune
# USER: Kopf asks for the user's name, and no user database knows that of an arbitrary UID.
ENV PATH=/opt/evictune/venv/bin:/usr/local/bin:/usr/bin:/bin USER=evictune
USER 65532:65532
ENTRYPOINT ["evictune"]
CMD ["--help"]
