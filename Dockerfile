# JupyterLab with the chapters on port 8888; the web app on port 5006 (see docs/containers.md).
# Linux on x86-64 or aarch64. `make test-image` runs these steps in a clean root file system, and JupyterLab,
# Notebook and the web app in it.
FROM debian:bookworm-slim

ARG TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 learner
ENV HOME=/home/learner PATH=/opt/workbench/bin:$PATH WORKBENCH_ZIG=1
WORKDIR /home/learner/workbench
COPY --chown=learner . .
RUN python3 -m venv /opt/workbench \
 && pip install --no-cache-dir ${TORCH} \
 && pip install --no-cache-dir ".[ui,rl]" notebook \
 && chown -R learner /home/learner
USER learner
EXPOSE 8888 5006
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser", "notebooks/00_start_here.ipynb"]
