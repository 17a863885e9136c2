/* Round trips between two processes: one caller, callers that share one client, callers with a
 * client each. One line a case. */
#include "net/rpc.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define MAX_THREADS 16

struct caller {
    struct rpc_client *c;
    struct str payload;
    int n_calls;
    bool is_failed;
};

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    rpc_reply(req, payload, NULL, 0);
}

static pid_t start_server(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        static const struct rpc_server_ops ops = {.on_request = on_request};
        struct loop *l = loop_new();
        struct rpc_server *s = NULL;
        if (rpc_server_new(l, path, 0600, &ops, NULL, &s, NULL) == 0) {
            loop_run(l);
        }
        _exit(1);
    }
    return pid;
}

static void *caller_main(void *arg)
{
    struct caller *k = arg;
    for (int i = 0; i < k->n_calls && !k->is_failed; i++) {
        k->is_failed =
            rpc_call(k->c, STR("echo"), k->payload, NULL, 0, 10 * NS_PER_S, NULL, NULL) < 0;
    }
    return NULL;
}

static int run(const char *path, const char *name, int n_threads, bool is_shared, size_t size,
               int n_calls)
{
    char *p = calloc(1, size);
    struct rpc_client *clients[MAX_THREADS];
    struct caller k[MAX_THREADS];
    pthread_t th[MAX_THREADS];
    int n_clients = is_shared ? 1 : n_threads;
    for (int i = 0; i < n_clients; i++) {
        clients[i] = rpc_client_new(path, NULL, NULL);
    }
    uint64_t t0 = time_mono_ns();
    for (int i = 0; i < n_threads; i++) {
        k[i] = (struct caller){clients[is_shared ? 0 : i], str_n(p, size), n_calls / n_threads,
                               false};
        if (pthread_create(&th[i], NULL, caller_main, &k[i]) != 0) {
            abort();
        }
    }
    bool is_failed = false;
    for (int i = 0; i < n_threads; i++) {
        pthread_join(th[i], NULL);
        is_failed = is_failed || k[i].is_failed;
    }
    double s = (double)(time_mono_ns() - t0) / 1e9;
    for (int i = 0; i < n_clients; i++) {
        rpc_client_free(clients[i]);
    }
    free(p);
    printf("%-34s %9.0f calls/s %8.1f us %9.1f MiB/s%s\n", name, n_calls / s,
           s * 1e6 * n_threads / n_calls, (double)size * n_calls / s / 1048576,
           is_failed ? " FAILED" : "");
    return is_failed;
}

int main(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/rpc-bench-%d.sock", (int)getpid());
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = start_server(path);
    int r = run(path, "1 caller, 64 B", 1, true, 64, 50000);
    r |= run(path, "16 callers, one client, 64 B", 16, true, 64, 100000);
    r |= run(path, "16 callers, 16 clients, 64 B", 16, false, 64, 100000);
    r |= run(path, "1 caller, 4 MiB", 1, true, 4 << 20, 200);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(path);
    return r;
}
