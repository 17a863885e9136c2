/* data_main.c — spx-viperblock-data NAME [N_RINGS]: started by spx-viperblock with a listening
 * SOCK_SEQPACKET socket at descriptor 3 and nothing else. It goes on when that one is gone. */
#include "base/log.h"
#include "base/num.h"
#include "viperblock/data.h"
#include <malloc.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

LOG_MODULE("data");

#define FD_LISTEN    3
#define RINGS        64u
#define RINGS_MAX    512u
#define MALLOC_HEAPS 4 /* threads share heaps: there are many, and they allocate little */

int main(int argc, char **argv)
{
    uint64_t n_rings = RINGS;
    if (argc < 2 || argc > 3 ||
        (argc == 3 && num_u64(str_c(argv[2]), RINGS_MAX, &n_rings) != 0) || n_rings == 0) {
        fprintf(stderr, "this program is started by spx-viperblock\n");
        return 2;
    }
    log_init("viperblock-data", LOG_LEVEL_INFO);
    loop_block_signals();
    mallopt(M_ARENA_MAX, MALLOC_HEAPS);
    const struct rlimit no_core = {0};
    if (setrlimit(RLIMIT_CORE, &no_core) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        fprintf(stderr, "core dumps cannot be switched off: %m\n");
        return 1;
    }
    static struct data p;
    struct err err = ERR_INIT;
    int rc = data_run(&p, argv[1], FD_LISTEN, (unsigned)n_rings, &err);
    if (rc != 0) {
        /* The kernel may count rings as locked memory. */
        log_error("data.failed", KV_CSTR("name", argv[1]), KV_U64("rings", n_rings),
                  KV_ERR(&err));
    }
    _exit(rc == 0
              ? 0
              : 1); /* no exit handlers: they would make calls that are not allowed any more */
}
