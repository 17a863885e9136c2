/* relay_up.h — a predastore for tests of the relay: paths say what it does.
 * Not here: the gateway's side (relay_flow_test.c).
 * Threads:  one for each connection.
 * Memory:   up_begin() and up_end(); one at a time.
 * Errors:   assertions. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/*   /head    what arrived, as the body      /no     refused on its head
 *   /torn    byte by byte, after a 100      /chunks chunked, with extension and trailer
 *   /204 /304 /length                       bodiless ones; /length is for HEAD
 *   /short /half /dies /nonsense /endless /long     broken answers
 *   /once    promises to stay, and goes     /get/N  N bytes
 *   /then-deaf  stays; closes when more comes, and does not read it
 *   /then-eats  stays; reads one more request whole, and closes
 *   /then-half  stays; reads the head of one more request and two bytes, and closes
 *   /early   begins its answer before the body came
 *   else     100-continue when it is expected; the number of bytes of the body, as they came */
struct up {
    char path[160];
    int fd;
    pthread_t thread;
    atomic_int n_conns, n_requests, n_eofs; /* n_eofs: connections that ended inside a body */
    atomic_size_t n_in, n_out;
    atomic_bool is_stalled; /* reads no bodies */
};
extern struct up up;

void up_begin(void); /* listens at up.path */
void up_end(void);
