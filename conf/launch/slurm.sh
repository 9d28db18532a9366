#!/bin/bash
# A run on GPU nodes under SLURM, a process for each GPU:
#
#     sbatch conf/launch/slurm.sh
#
# Checked: by shellcheck; its command line by simjax; the script with stand-ins for srun and scontrol that start two
# processes with SLURM's variables, stop them by USR1 and start the job again. Not run: on a cluster, with GPUs.
#
#SBATCH --job-name=simjax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@120
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

# A task for each GPU, and every task sees all GPUs of its node: JAX gives each the one with its own number, so leave out
# --gpus-per-task and --gpu-bind. 120 s before the time is up SLURM sends USR1 to the tasks (not to this script); they
# write a checkpoint at one and the same step and end with exit code 75. Give more than twice the time of a checkpoint.
set -u

# On a file system that all nodes share. A job that is requeued keeps its number, and so finds its own run.
runs="${SCRATCH:-$HOME}/simjax/$SLURM_JOB_ID"

code=0
srun --kill-on-bad-exit=0 python -m simjax.run \
    experiment=fluid "grid.shape=[2048,2048]" mesh.x=4 mesh.y=2 distributed=auto \
    resume=auto output.root="$runs" || code=$?

if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
