# JupyterLab with the chapters on port 8888; the web app on port 5006 (see docs/containers.md).
# Linux on x86-64. Tests install a wheel into an empty environment and run the demo there
# (tests/test_release.py); they do not build this image.
FROM python:3.12-slim-bookworm

RUN useradd --create-home --uid 1000 learner
WORKDIR /home/learner/workbench
COPY --chown=learner . .
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir ".[ui,rl]" \
 && chown learner /home/learner/workbench
USER learner
EXPOSE 8888 5006
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser", "notebooks/00_start_here.ipynb"]
