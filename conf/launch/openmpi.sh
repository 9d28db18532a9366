#!/bin/bash
# A run under Open MPI 4 or 5, a process for each GPU of two hosts with four GPUs each:
#
#     FIRST=node1 HOSTS=node1:4,node2:4 bash conf/launch/openmpi.sh
#
# Checked: by shellcheck; its command line by simjax; run at a small size by Open MPI 5.0.11 on one machine, two processes
# with four virtual CPU devices each. Not run: with GPUs, on several hosts, with Open MPI 4.
#
# JAX knows Open MPI 4 by itself (distributed=auto), Open MPI 5 it does not: so each process is told its place, and sees
# only the GPU that is its own. MPI starts the processes and nothing more; arrays travel by NCCL.
set -u

PROCESSES="${PROCESSES:-8}"
export FIRST="${FIRST:-localhost}" # the host of process 0, as the others reach it
PORT="${PORT:-9876}"
export PORT
RUNS="${RUNS:-$PWD/outputs}" # a folder that all hosts share
export RUNS

# shellcheck disable=SC2016 # the variables are those of each process
mpirun -np "$PROCESSES" --host "${HOSTS:-localhost:8}" -x FIRST -x PORT -x RUNS sh -c '
    export CUDA_VISIBLE_DEVICES="$OMPI_COMM_WORLD_LOCAL_RANK"
    exec python -m simjax.run experiment=fluid "grid.shape=[2048,2048]" mesh.x=4 mesh.y=2 \
        "distributed={coordinator: \"$FIRST:$PORT\", processes: $OMPI_COMM_WORLD_SIZE, process: $OMPI_COMM_WORLD_RANK}" \
        resume=auto output.root="$RUNS"
'
