# syntax=docker/dockerfile:1
# Two images from this tree:
#   docker build --target judge -t tallystick-judge .
#       judges evidence, trains and audits jobs that exist; no PyTorch
#   docker build --build-arg TORCH_INDEX=ADDRESS -t tallystick .
#       the same with PyTorch and the extras of requirements.lock; ADDRESS is PyTorch's index of builds
#       without CUDA, as its install page shows it for pip and CPU
# Then: docker run --rm -v "$PWD:/work" tallystick train JOB --out RUN

FROM python:3.12-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake g++ make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim-bookworm AS judge
COPY --from=build /wheel /wheel
COPY constraints.txt /wheel/
RUN python -m pip install --no-cache-dir --only-binary :all: -c /wheel/constraints.txt /wheel/*.whl \
 && useradd --create-home tallystick
USER tallystick
WORKDIR /work
ENTRYPOINT ["tallystick"]
CMD ["--help"]

FROM python:3.12-slim-bookworm AS train
ARG TORCH_INDEX
COPY --from=build /wheel /wheel
COPY constraints.txt requirements.lock /wheel/
# The lock file names no torch: the digest of an index's file fits that index only.
RUN test -n "$TORCH_INDEX" || { echo "Give --build-arg TORCH_INDEX=ADDRESS"; exit 1; } \
 && python -m pip install --no-cache-dir --require-hashes --only-binary :all: -r /wheel/requirements.lock \
 && python -m pip install --no-cache-dir --only-binary :all: -c /wheel/constraints.txt \
      --index-url "$TORCH_INDEX" --no-deps torch \
 && python -m pip install --no-cache-dir --no-deps /wheel/*.whl \
 && useradd --create-home tallystick
USER tallystick
WORKDIR /work
ENTRYPOINT ["tallystick"]
CMD ["--help"]
