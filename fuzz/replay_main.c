/* replay_main.c — runs a fuzz target over its corpus in the ordinary test run, without
 * libFuzzer. Every file of the folders (or files) named on the command line is given to
 * LLVMFuzzerTestOneInput(), then a fixed number of damaged copies of it: cut short, bytes
 * changed, pieces doubled or spliced with another file. The damage comes from a fixed seed, so
 * a failure repeats. The input that is being tried is written to $FUZZ_LAST when that is set,
 * for a look after a crash. An empty corpus is a failure: such a test could not fail. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_INPUTS    20000u
#define MAX_FILE      (4u << 20)
#define N_DAMAGED     64u
#define N_DAMAGED_MAX 40000u /* of all files together: the ordinary run stays short */

struct input {
    char *path;
    uint8_t *p;
    size_t n;
};
struct corpus {
    struct input *v;
    size_t n, cap;
};

static uint64_t rng_state = UINT64_C(0x9e3779b97f4a7c15);

static size_t rng_below(size_t n)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return n ? (size_t)(rng_state % n) : 0;
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "replay: %s: %s: %s\n", path, what, errno ? strerror(errno) : "unexpected");
    exit(2);
}

static void add_file(struct corpus *c, const char *path, size_t size)
{
    if (c->n == MAX_INPUTS || size > MAX_FILE) {
        errno = EFBIG;
        die("too large for a corpus", path);
    }
    if (c->n == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 64;
        c->v = reallocarray(c->v, c->cap, sizeof(*c->v));
    }
    struct input in = {strdup(path), malloc(size ? size : 1), size};
    FILE *f = fopen(path, "rb");
    if (!c->v || !in.path || !in.p || !f || fread(in.p, 1, size, f) != size) {
        die("cannot be read", path);
    }
    fclose(f);
    c->v[c->n++] = in;
}

static void add_path(struct corpus *c, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        die("cannot be opened", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(c, path, (size_t)st.st_size);
        return;
    }
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, alphasort);
    if (n < 0) {
        die("cannot be listed", path);
    }
    for (int i = 0; i < n; i++) {
        char *sub = NULL;
        if (names[i]->d_name[0] != '.' && asprintf(&sub, "%s/%s", path, names[i]->d_name) > 0) {
            add_path(c, sub);
        }
        free(sub);
        free(names[i]);
    }
    free(names);
}

static void run_one(const uint8_t *p, size_t n)
{
    const char *last = getenv("FUZZ_LAST");
    if (last) {
        FILE *f = fopen(last, "wb");
        if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0) {
            die("cannot be written", last);
        }
    }
    /* A copy of exactly this size: the address sanitizer sees the first byte read past it. */
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) {
        die("no memory", "-");
    }
    memcpy(copy, p, n);
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static size_t damage(const struct corpus *c, const struct input *in, uint8_t *out, size_t cap)
{
    static const uint8_t odd[] = {0x00, 0xff, 0x7f, 0x80, '\r', '\n', '"', '<',
                                  '&',  '%',  '{',  '0',  '9',  '-',  '/', ' '};
    size_t n = in->n;
    memcpy(out, in->p, n);
    for (size_t rounds = 1 + rng_below(4); rounds > 0; rounds--) {
        size_t at = rng_below(n + 1), len = rng_below(9) + 1;
        switch (rng_below(6)) {
        case 0: n = at; break;
        case 1:
            if (at < n) {
                out[at] ^= (uint8_t)(1u << rng_below(8));
            }
            break;
        case 2:
            if (at < n) {
                out[at] = odd[rng_below(sizeof(odd))];
            }
            break;
        case 3: /* drop a piece */
            if (at + len <= n) {
                memmove(out + at, out + at + len, n - at - len);
                n -= len;
            }
            break;
        case 4: /* double a piece */
            if (at + len <= n && n + len <= cap) {
                memmove(out + at + len, out + at, n - at);
                n += len;
            }
            break;
        default: { /* go on as another input does */
            const struct input *other = &c->v[rng_below(c->n)];
            size_t from = rng_below(other->n + 1), m = other->n - from;
            if (at + m <= cap) {
                memcpy(out + at, other->p + from, m);
                n = at + m;
            }
        }
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    struct corpus c = {0};
    for (int i = 1; i < argc; i++) {
        add_path(&c, argv[i]);
    }
    if (c.n == 0) {
        fprintf(stderr, "replay: no input: name the folder of a corpus\n");
        return 2;
    }
    size_t biggest = 0;
    for (size_t i = 0; i < c.n; i++) {
        run_one(c.v[i].p, c.v[i].n);
        biggest = c.v[i].n > biggest ? c.v[i].n : biggest;
    }
    uint8_t *out = malloc(biggest * 2 + 64);
    if (!out) {
        die("no memory", "-");
    }
    size_t n_damaged = 0;
    for (size_t i = 0; i < c.n; i++) {
        for (size_t k = 0; k < N_DAMAGED && n_damaged < N_DAMAGED_MAX; k++, n_damaged++) {
            run_one(out, damage(&c, &c.v[i], out, biggest * 2 + 64));
        }
    }
    printf("replay: %zu inputs and %zu damaged copies\n", c.n, n_damaged);
    for (size_t i = 0; i < c.n; i++) {
        free(c.v[i].path);
        free(c.v[i].p);
    }
    free(c.v);
    free(out);
    return 0;
}
