#!/bin/bash
# A run on all hosts of a TPU slice, a process for each host. From your own machine, with gcloud:
#
#     TPU=my-slice ZONE=us-west4-a bash conf/launch/tpu-vm.sh
#
# Checked: by shellcheck; its command lines by simjax. Not run: on a TPU, or with gcloud.
#
# The slice here is a v5litepod-16: 4 hosts with 4 chips each. It was made by
#
#     gcloud compute tpus tpu-vm create "$TPU" --zone="$ZONE" --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite
#
# and every host has simjax (pip install 'simjax[tpu]') and one shared folder, such as a Filestore share, at /mnt/shared.
set -u

on_all_hosts() {
    gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="$1"
}

# To stop with a checkpoint: a signal to any one process stops all of them at the same step.
#     gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=0 --command="pkill -TERM -f simjax.run"
# Then, or on a new slice with the same folder, the same command goes on.
on_all_hosts "python3 -m simjax.run experiment=fluid grid.shape=[4096,4096] mesh.x=4 mesh.y=4 distributed=auto \
    resume=auto output.root=/mnt/shared/simjax/first"
