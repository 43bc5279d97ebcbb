"""Logistic regression whose reports go to MLflow: each rank is a run, and their parent is the job."""

import mlflow
import numpy as np

import malt

rng = np.random.default_rng(0)
X = rng.standard_normal((8000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(8000))

job = None
if malt.lowest():  # MLFLOW_TRACKING_URI names the server
    mlflow.set_experiment("malt")
    with mlflow.start_run(run_name="logistic regression", tags={"ranks": str(malt.size())}) as run:
        job = run.info.run_id
job = next(one for one in malt.allgather(job) if one)
mlflow.set_experiment("malt")
mlflow.start_run(run_name=f"rank {malt.rank()}", parent_run_id=job, nested=True)
malt.on_report(lambda numbers: mlflow.log_metrics(numbers, step=numbers["epoch"]))

w = np.zeros(30)
replica = malt.Replica(w)
for epoch in range(4):
    rows = malt.shard(len(X), shuffle=True, seed=epoch)
    for i in rows:
        w += 0.02 * y[i] * X[i] / (1 + np.exp(y[i] * (X[i] @ w)))
        replica.step()
    loss = np.mean(np.log1p(np.exp(-y * (X @ w))))
    malt.report(loss=loss, epoch=epoch + 1, epochs=4, examples=(epoch + 1) * len(rows))
replica.finish()
mlflow.end_run()
