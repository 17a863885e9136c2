/* Figures of blocks and shards: seal and open, CPU of writing and reading, making lost units.
 * Drives are folders below the argument (/tmp): sync times are of the disk there and no
 * measure of this code. */
#include "base/time.h"
#include "keys/keys.h"
#include "ostore/body_int.h"
#include "ostore/shard.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define DRIVES     6
#define BODIES_MAX 300

static struct body_keys *keys;
static struct drives *drives;
static struct shards *shards;
static struct arena *arena;

static uint64_t cpu_ns(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

/* Of this thread alone, so that a busy machine does not count. */
static uint64_t own_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void must(int r, const struct err *err)
{
    if (r < 0) {
        (void)fprintf(stderr, "%d: %s\n", r, err ? err->msg : "");
        exit(1);
    }
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

/* One small body: key drawn, wrapped, sealed; then unwrapped and opened. */
static void bench_block(size_t n, bool is_sealed)
{
    static uint8_t plain[BODY_PLAIN], stored[BODY_BLOCK];
    unsigned turns = 50000;
    uint64_t seal = 0, open = 0;
    for (unsigned i = 0; i < turns; i++) {
        struct body_codec c;
        struct orec_body b;
        uint64_t t0 = own_ns();
        must(body_codec_new(&c, is_sealed ? keys : NULL, arena, &b, NULL), NULL);
        body_seal(&c, 0, plain, n, stored);
        body_codec_done(&c);
        uint64_t t1 = own_ns();
        must(body_codec_open(&c, keys, &b, NULL), NULL);
        must(body_open(&c, 0, stored, n + BODY_TRAILER, plain), NULL);
        body_codec_done(&c);
        uint64_t t2 = own_ns();
        seal += t1 - t0;
        open += t2 - t1;
        arena_reset(arena);
    }
    (void)printf("body of %5zu bytes, %-6s  seal %5.2f us  open %5.2f us\n", n,
                 is_sealed ? "sealed" : "crc", (double)seal / turns / 1e3,
                 (double)open / turns / 1e3);
}

static void bench_blocks(bool is_sealed)
{
    static uint8_t plain[64][BODY_PLAIN], stored[64][BODY_BLOCK];
    struct body_codec c;
    struct orec_body b;
    uint64_t seal = 0, open = 0;
    unsigned turns = 500;
    must(body_codec_new(&c, is_sealed ? keys : NULL, arena, &b, NULL), NULL);
    for (unsigned t = 0; t < turns; t++) {
        uint64_t t0 = own_ns();
        for (unsigned i = 0; i < 64; i++) {
            body_seal(&c, i, plain[i], BODY_PLAIN, stored[i]);
        }
        uint64_t t1 = own_ns();
        for (unsigned i = 0; i < 64; i++) {
            must(body_open(&c, i, stored[i], BODY_BLOCK, plain[i]), NULL);
        }
        seal += t1 - t0;
        open += own_ns() - t1;
    }
    body_codec_done(&c);
    double mib = 64.0 * BODY_PLAIN / (1 << 20) * turns;
    (void)printf("1 MiB in blocks, %-6s  seal %6.0f MiB/s  open %6.0f MiB/s\n",
                 is_sealed ? "sealed" : "crc", mib / ((double)seal / 1e9),
                 mib / ((double)open / 1e9));
}

static void read_all(const struct orec_body *b, struct body_codec *c, size_t size, size_t step,
                     uint8_t *p)
{
    AUTO(shard_reader_freep) struct shard_reader *r = NULL;
    struct err err = ERR_INIT;
    must(shard_reader_open(shards, b, c, &r, &err), &err);
    for (size_t at = 0; at < size; at += step) {
        ssize_t n = shard_read(r, size, at, p, step, false, &err);
        must(n < 0 ? (int)n : 0, &err);
    }
}

static void bench_shards(unsigned k, unsigned m, bool is_sealed, size_t size, unsigned turns)
{
    static uint8_t p[1 << 20];
    static struct orec_body bodies[BODIES_MAX];
    uint64_t write = 0, read = 0, lost = 0, finish = 0, wall = 0;
    for (unsigned t = 0; t < turns; t++) {
        struct err err = ERR_INIT;
        struct body_codec c;
        struct orec_body b;
        struct shard_writer *w = NULL;
        const struct shard_code code = {.k = k, .m = m, .unit = 128 << 10};
        uint64_t c0 = cpu_ns(), w0 = time_mono_ns();
        must(body_codec_new(&c, is_sealed ? keys : NULL, arena, &b, &err), &err);
        must(shard_writer_new(shards, &code, &c, &b, &w, &err), &err);
        for (size_t at = 0; at < size; at += sizeof(p)) {
            must(shard_writer_add(w, p, sizeof(p), &err), &err);
        }
        uint64_t f0 = time_mono_ns();
        must(shard_writer_finish(w, &b, &err), &err);
        finish += time_mono_ns() - f0;
        shard_writer_free(w);
        uint64_t c1 = cpu_ns();
        wall += time_mono_ns() - w0;
        read_all(&b, &c, size, sizeof(p), p);
        uint64_t c2 = cpu_ns();
        if (m > 0) { /* one data shard is gone */
            struct orec_body one = b;
            one.k = 1;
            one.m = 0;
            shard_remove(shards, &one);
            read_all(&b, &c, size, sizeof(p), p);
        }
        uint64_t c3 = cpu_ns();
        write += c1 - c0;
        read += c2 - c1;
        lost += c3 - c2;
        body_codec_done(&c);
        bodies[t] =
            b; /* removed at the end: names that were just freed cost a search in ext4 */
    }
    for (unsigned t = 0; t < turns; t++) {
        shard_remove(shards, &bodies[t]);
    }
    arena_reset(arena);
    double mib = (double)size / (1 << 20) * turns;
    (void)printf("RS(%u,%u) %4zu MiB %-6s  CPU: write %5.0f, read %5.0f, one lost %5.0f MiB/s; "
                 "wall: write %5.0f MiB/s, finish %6.1f ms\n",
                 k, m, size >> 20, is_sealed ? "sealed" : "crc", mib / ((double)write / 1e9),
                 mib / ((double)read / 1e9), m ? mib / ((double)lost / 1e9) : 0.0,
                 mib / ((double)wall / 1e9), (double)finish / turns / 1e6);
}

static int fetch(void *ctx, struct secret *ret, struct err *err)
{
    return secret_set(ret, STR("0123456789abcdef0123456789abcdef"));
}

int main(int argc, char **argv)
{
    char top[200], path[DRIVES][256];
    const char *paths[DRIVES];
    struct err err = ERR_INIT;
    struct keys *root = NULL;
    const struct keys_provider provider = {.name = "bench", .fetch = fetch};
    (void)snprintf(top, sizeof(top), "%.150s/shard-bench-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    if (!mkdtemp(top)) {
        return 1;
    }
    for (unsigned i = 0; i < DRIVES; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "%s/d%u", top, i);
        paths[i] = path[i];
        must(mkdir(path[i], 0700), NULL);
    }
    arena = arena_new(1 << 20);
    must(keys_open(&provider, NULL, &root, &err), &err);
    const struct drives_opts o = {.paths = paths, .n = DRIVES};
    must(drives_open(&o, &drives, &err), &err);
    must(shards_open(&(struct shards_opts){.drives = drives}, &shards, &err), &err);
    must(body_keys_open(drives, root, &keys, &err), &err);
    for (unsigned i = 0; i < DRIVES * 256; i++) { /* folders, once for all */
        must(MIN(0, drives_data_dir(drives, i / 256, (uint8_t)i)), NULL);
    }
    for (unsigned i = 0; i < 2; i++) {
        bench_block(4096, i);
        bench_block(BODY_PLAIN, i);
        bench_blocks(i);
    }
    static const unsigned codes[][2] = {{1, 0}, {1, 1}, {2, 1}, {4, 2}};
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned s = 0; s < 2; s++) {
            bench_shards(codes[i][0], codes[i][1], s, 1 << 20, 200);
            bench_shards(codes[i][0], codes[i][1], s, 64 << 20, 6);
        }
    }
    body_keys_close(keys);
    shards_close(shards);
    drives_close(drives);
    keys_close(root);
    arena_free(arena);
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
