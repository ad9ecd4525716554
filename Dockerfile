# Two images: the operator, and the vLLM plugin that an init container copies (`evictune wire`).
#
#   docker build --target operator --tag evictune .
#   docker build --target plugin --tag evictune-plugin .
#
# Each is made from nothing but its programs and the libraries that these load: no shell, no package
# manager, no compiler, whatever BASE_IMAGE has. That one is to build with: Debian 12 or newer, or
# what is made from it, such as python:3.12-slim. Behind a package mirror: --build-arg
# PIP_INDEX_URL=... and, with a certificate authority of its own, mount the bundle and name it by
# --build-arg PIP_CERT=...

ARG BASE_IMAGE=docker.io/library/python:3.12-slim

FROM ${BASE_IMAGE} AS build
ARG PIP_CERT
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# A plain Debian has no Python yet.
RUN python3 -c 'import ensurepip, ssl' 2>/dev/null \
 || { apt-get update && apt-get install --yes --no-install-recommends \
      ca-certificates python3 python3-venv; }
RUN python3 -m venv /opt/build \
 && /opt/build/bin/pip install --quiet 'setuptools>=77' wheel
COPY scripts/image_root.py scripts/image_root.py

FROM build AS plugin-build
COPY policies policies
RUN /opt/build/bin/pip install --quiet --no-deps --no-build-isolation --no-compile \
      --target /opt/evictune/plugin ./policies \
 && rm -r /opt/evictune/plugin/bin \
 && python3 scripts/image_root.py /image /opt/evictune/plugin /bin/cp

FROM scratch AS plugin
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="evictune-plugin" \
      org.opencontainers.image.description="The vLLM plugin of evictune, for an init container to copy" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=plugin-build /image /
ENV PATH=/usr/bin:/bin
USER 65532:65532
ENTRYPOINT ["cp", "-r", "/opt/evictune/plugin/."]
CMD ["/evictune-plugin/"]

FROM build AS operator-build
RUN python3 -m venv --without-pip /opt/evictune/venv
# The dependencies change less often than the sources: a layer of their own.
COPY constraints/operator.txt constraints/operator.txt
RUN /opt/build/bin/pip --python /opt/evictune/venv/bin/python install --quiet \
      --requirement constraints/operator.txt
COPY operator operator
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist ./operator \
 && /opt/build/bin/pip --python /opt/evictune/venv/bin/python install --quiet --no-deps \
      /dist/evictune-*.whl \
 && python3 scripts/image_root.py --python /image /opt/evictune/venv \
 && echo 'evictune:x:65532:65532::/:/sbin/nologin' > /image/etc/passwd \
 && echo 'hosts: files dns' > /image/etc/nsswitch.conf

FROM scratch AS operator
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="evictune" \
      org.opencontainers.image.description="Tunes how vLLM evicts KV-cache blocks, in a closed loop against a TTFT target" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-build /image /
# USER: Kopf asks for the user's name, and no user database knows that of an arbitrary UID.
ENV PATH=/opt/evictune/venv/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt USER=evictune
USER 65532:65532
ENTRYPOINT ["evictune"]
CMD ["--help"]
