/* One run of a load, or the filling of a disk; prints one line of JSON. Raw io_uring on a file
 * and vhost-user differ only in the way to the disk.
 *   loader raw|vu PATH SIZE READ_PERCENT BLOCK DEPTH JOBS SEQUENTIAL FLUSHED MS SEED
 *   loader fill-raw|fill-vu PATH SIZE */
#include "base/num.h"
#include "base/time.h"
#include "blk/vu_load.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <string.h>

#define FILL_BLOCK (1u << 20)
#define FILL_DEPTH 8u

static void die(const char *what)
{
    fprintf(stderr, "loader: %s\n", what);
    exit(1);
}

static uint64_t number(const char *text)
{
    uint64_t v = 0;
    if (num_u64(str_c(text), UINT64_MAX, &v) != 0) {
        die("a number is wrong");
    }
    return v;
}

static int open_raw(const char *path)
{
    int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) {
        die("the file cannot be opened for direct I/O");
    }
    return fd;
}

static struct vu_client *open_vu(const char *path, unsigned n_queues, unsigned depth,
                                 uint64_t mem)
{
    struct err err = ERR_INIT;
    struct vu_client *c = NULL;
    struct vu_client_opts o = {.path = path,
                               .n_queues = n_queues,
                               .queue_size = depth > 128 ? 1024 : 128,
                               .mem_size = mem,
                               .has_inflight = true,
                               .has_event_idx = true,
                               .has_indirect = true};
    if (vu_client_new(&o, &c, &err) < 0 && err.code == -ENOTSUP) {
        o.has_indirect = o.has_event_idx = false; /* a peer that has less */
        err = (struct err)ERR_INIT;
        (void)(vu_client_new(&o, &c, &err) < 0);
    }
    if (!c) {
        die(err.msg);
    }
    return c;
}

static void fill_vu(const char *path, uint64_t size)
{
    struct vu_client *c = open_vu(path, 1, FILL_DEPTH, FILL_DEPTH * FILL_BLOCK);
    struct vu_end ends[FILL_DEPTH];
    unsigned n_busy = 0, tag = 0;
    uint64_t seed = 5, *p = vu_client_mem(c);
    for (size_t i = 0; i < FILL_DEPTH * FILL_BLOCK / sizeof(*p); i++) {
        p[i] = load_rand(&seed, UINT64_MAX);
    }
    for (uint64_t off = 0; off < size || n_busy > 0;) {
        for (; off < size && n_busy < FILL_DEPTH; off += FILL_BLOCK, n_busy++, tag++) {
            struct vu_io io = {.type = VIRTIO_BLK_T_OUT,
                               .off = off,
                               .len = FILL_BLOCK,
                               .p = (uint8_t *)p + (size_t)(tag % FILL_DEPTH) * FILL_BLOCK};
            if (vu_client_put(c, 0, &io) < 0) {
                die("the ring is full");
            }
        }
        int n = vu_client_kick(c, 0);
        n = n < 0 ? n : vu_client_wait(c, 0, 30 * NS_PER_S, ends, FILL_DEPTH);
        for (int i = 0; i < n; i++) {
            if (ends[i].status != VIRTIO_BLK_S_OK) {
                die("a write failed");
            }
        }
        if (n <= 0) {
            die("the server does not answer");
        }
        n_busy -= (unsigned)n;
    }
    vu_client_free(c);
}

static void print(const struct load_result *r)
{
    double s = (double)r->ns / 1e9;
    printf("{\"ops\": %llu, \"seconds\": %.6f, \"bytes\": %llu, \"cpu_us\": %.1f",
           (unsigned long long)(r->n_reads + r->n_writes), s, (unsigned long long)r->bytes,
           (double)r->cpu_ns / 1e3);
    const struct load_hist *h[2] = {&r->read, &r->write};
    for (unsigned i = 0; i < 2; i++) {
        printf(", \"%s_p50_us\": %.1f, \"%s_p99_us\": %.1f, \"%s_max_us\": %.1f",
               i ? "write" : "read", (double)load_hist_at(h[i], 500000) / 1e3,
               i ? "write" : "read", (double)load_hist_at(h[i], 990000) / 1e3,
               i ? "write" : "read", (double)h[i]->max_ns / 1e3);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    static struct load_result r;
    if (argc < 4) {
        die("what?");
    }
    const char *how = argv[1], *path = argv[2];
    uint64_t size = number(argv[3]);
    if (strcmp(how, "fill-vu") == 0) {
        fill_vu(path, size);
        return 0;
    }
    bool is_raw = strcmp(how, "raw") == 0 || strcmp(how, "fill-raw") == 0;
    struct load_target t = {.fd = is_raw ? open_raw(path) : -1, .size = size};
    if (strcmp(how, "fill-raw") == 0) {
        if (load_fill(&t, 5, NULL, NULL, &err) < 0) {
            die(err.msg);
        }
        return 0;
    }
    if (argc != 12) {
        die("how?");
    }
    struct load_pattern p = {.name = "run",
                             .read_percent = (unsigned)number(argv[4]),
                             .block = (uint32_t)number(argv[5]),
                             .depth = (unsigned)number(argv[6]),
                             .n_jobs = (unsigned)number(argv[7]),
                             .is_sequential = number(argv[8]) != 0,
                             .is_flushed = number(argv[9]) != 0};
    uint64_t ns = number(argv[10]) * NS_PER_MS, seed = number(argv[11]);
    int rc = 0;
    if (is_raw) {
        rc = load_raw(&t, 1, &p, ns, seed, NULL, &r, &err);
    } else {
        struct vu_client *c = open_vu(path, p.n_jobs, p.depth, vu_load_mem(&p));
        rc = vu_load(c, &p, size, ns, seed, NULL, &r, &err);
        vu_client_free(c);
    }
    if (rc < 0) {
        die(err.msg);
    }
    print(&r);
    return 0;
}
