#!/bin/bash
# A run on a TPU slice of a GKE cluster that xpk (github.com/AI-Hypercomputer/xpk) has made, a process for each host:
#
#     CLUSTER=my-cluster PROJECT=my-project ZONE=us-west4-a IMAGE=my-image bash conf/launch/xpk.sh
#
# Checked: by shellcheck; its command line by simjax; the options against xpk's page on workloads. Not run: with xpk.
#
# The image has simjax[tpu]. /mnt/shared is a volume that all hosts mount: `xpk storage attach` gives it that path.
set -u

# A host that fails or is preempted restarts the workload, which goes on from its last checkpoint.
xpk workload create \
    --workload=simjax --cluster="$CLUSTER" --project="$PROJECT" --zone="$ZONE" \
    --tpu-type=v5litepod-16 --num-slices=1 --docker-image="$IMAGE" --max-restarts=50 \
    --command="python3 -m simjax.run experiment=fluid grid.shape=[4096,4096] mesh.x=4 mesh.y=4 distributed=auto \
        resume=auto output.root=/mnt/shared/simjax/first"
