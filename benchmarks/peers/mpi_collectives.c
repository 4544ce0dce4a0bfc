/* Collectives of MPI in the measuring house: rank 0 reads "collective OP BYTES COUNT" and answers with the seconds of each. The
 * other ranks sleep between requests, for a rank that waits in MPI takes a whole core. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPS = 4, TAG = 7 };
static const char *const NAMES[OPS] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"};

static void once(int op, float *in, float *out, int elements, int part) {
  switch (op) {
    case 0:
      MPI_Allreduce(MPI_IN_PLACE, in, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 2:
      MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    default:
      MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

/* All ranks: one to warm up, then `count` timed ones. Rank 0 prints. */
static void measure(int op, long bytes, int count, int rank, int size) {
  int elements = (int)(bytes / 4), part = elements / size;
  float *in = calloc((size_t)elements + 1, 4), *out = calloc((size_t)elements + 1, 4);
  if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 71);
  once(op, in, out, elements, part);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("{\"seconds\": [");
  for (int i = 0; i < count; ++i) {
    double begin = MPI_Wtime();
    once(op, in, out, elements, part);
    double seconds = MPI_Wtime() - begin;
    if (rank == 0) printf("%s%.9g", i == 0 ? "" : ", ", seconds);
  }
  if (rank == 0) printf("]}\n");
  fflush(stdout);
  free(in);
  free(out);
}

static int read_request(long order[3]) {
  char line[256], op[64];
  while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, "quit", 4) != 0) {
    if (sscanf(line, "collective %63s %ld %ld", op, &order[1], &order[2]) == 3) {
      for (order[0] = 0; order[0] < OPS; ++order[0])
        if (strcmp(op, NAMES[order[0]]) == 0) return 1;
    }
    printf("{\"skip\": \"there is no such request\"}\n");
    fflush(stdout);
  }
  return 0;
}

int main(int argc, char **argv) {
  int rank, size;
  long order[3] = {0, 0, 0}; /* op (-1: end), bytes, count */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  do {
    if (rank == 0) {
      if (!read_request(order)) order[0] = -1;
      for (int r = 1; r < size; ++r) MPI_Send(order, 3, MPI_LONG, r, TAG, MPI_COMM_WORLD);
    } else {
      int here = 0;
      for (;;) {
        MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE);
        if (here) break;
        usleep(1000);
      }
      MPI_Recv(order, 3, MPI_LONG, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (order[0] >= 0) measure((int)order[0], order[1], (int)order[2], rank, size);
  } while (order[0] >= 0);
  MPI_Finalize();
  return 0;
}
