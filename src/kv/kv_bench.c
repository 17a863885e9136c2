/* How fast the store commits: kv_bench sqlite FILE | kv_bench remote SOCKET. Prints one JSON
 * object a row. */
#include "base/macro.h"
#include "base/time.h"
#include "kv/kv.h"

#include <pthread.h>
#include <stdio.h>

#define SECONDS     3
#define MAX_CLIENTS 32

struct client {
    struct kv *kv;
    pthread_t thread;
    int idx;
    uint64_t n, end_ns, max_ns;
    bool is_failed;
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    char key[32], value[200];
    snprintf(key, sizeof(key), "bench/%d", c->idx);
    memset(value, 'v', sizeof(value));
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(value, sizeof(value))};
    uint64_t now = time_mono_ns();
    while (now < c->end_ns && !c->is_failed) {
        c->is_failed = kv_txn(c->kv, NULL, 0, &op, 1, NULL, NULL) < 0;
        uint64_t t = time_mono_ns();
        c->max_ns = MAX(c->max_ns, t - now);
        now = t;
        c->n++;
    }
    return NULL;
}

static int run_writers(struct kv *const *kv, int n_clients)
{
    static struct client c[MAX_CLIENTS];
    uint64_t start = time_mono_ns(), n = 0, max_ns = 0;
    bool is_failed = false;
    for (int i = 0; i < n_clients; i++) {
        c[i] = (struct client){.kv = kv[i], .idx = i, .end_ns = start + SECONDS * NS_PER_S};
        if (pthread_create(&c[i].thread, NULL, client_main, &c[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < n_clients; i++) {
        pthread_join(c[i].thread, NULL);
        n += c[i].n;
        max_ns = MAX(max_ns, c[i].max_ns);
        is_failed = is_failed || c[i].is_failed;
    }
    uint64_t took = time_mono_ns() - start;
    printf("{\"name\":\"kv.txn.clients_%d\",\"value\":%.0f,\"unit\":\"txn/"
           "s\",\"max_ms\":%.1f,\"ok\":%s}\n",
           n_clients, (double)n * 1e9 / (double)took, (double)max_ns / 1e6,
           is_failed ? "false" : "true");
    return is_failed;
}

static int run_reads(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    uint64_t start = time_mono_ns(), n = 0;
    struct kv_item item;
    while (time_mono_ns() - start < NS_PER_S) {
        arena_reset(a);
        if (kv_get(kv, a, STR("bench/0"), &item, NULL) < 0) {
            return 1;
        }
        n++;
    }
    printf("{\"name\":\"kv.get\",\"value\":%llu,\"unit\":\"get/s\",\"ok\":true}\n",
           (unsigned long long)n);
    return 0;
}

int main(int argc, char **argv)
{
    struct kv *kv[MAX_CLIENTS] = {0};
    struct err err = ERR_INIT;
    if (argc != 3) {
        fprintf(stderr, "usage: kv_bench sqlite FILE | remote SOCKET\n");
        return 2;
    }
    bool is_remote = strcmp(argv[1], "remote") == 0;
    for (int i = 0; i < MAX_CLIENTS; i++) {
        int r = 0;
        if (is_remote) {
            r = kv_open_remote_as(argv[2], "admin", &kv[i], &err);
        } else if (i == 0) {
            r = kv_open_sqlite(argv[2], &kv[i], &err);
        } else {
            kv[i] = kv[0];
        }
        if (r < 0) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
    }
    int rc = run_writers(kv, 1) || run_writers(kv, MAX_CLIENTS) || run_reads(kv[0]);
    for (int i = 0; i < MAX_CLIENTS && (is_remote || i == 0); i++) {
        kv_close(kv[i]);
    }
    return rc;
}
