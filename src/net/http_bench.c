/* http_bench.c — CPU time that the HTTP server needs for a request and for a GiB, beside nginx
 * when that is installed. The client's time does not count, so a busy machine disturbs little.
 * A table for people, --json one object a row. */
#include "base/buf.h"
#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "crypto/x509.h"
#include "net/http_server.h"
#include "net/http_test_client.h"
#include "net/tls.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define N_ROUNDS  3
#define N_THREADS 2
#define N_CONNS   32 /* of a thread */
#define SMALL     1024u
#define BIG       (16u << 20)
#define RUN_NS    (1500 * NS_PER_MS)

static char dir[64], ca_path[96], cert_path[96], key_path[96];
static bool is_json;

/* ---- servers: each a process of its own ---- */

struct server {
    pid_t pid;
    uint16_t port[2]; /* plain, TLS */
};

static char block[65536];

static void pump(struct http_req *req, void *user)
{
    size_t *left = user;
    while (*left) {
        size_t n = MIN(sizeof(block), *left);
        *left -= n;
        bool is_last = *left == 0;
        if (http_body_more(req, str_n(block, n), is_last) > 4 * sizeof(block) && !is_last) {
            http_on_drain(req, pump, 2 * sizeof(block));
            return;
        }
    }
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    size_t *left = arena_xalloc(http_req_arena(req), sizeof(*left));
    *left = BIG;
    *ret_user = left;
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    static const struct http_header type = {{"Content-Type", 12}, {"text/plain", 10}};
    struct http_answer a = {
        .status = 200, .headers = &type, .n_headers = 1, .body = str_n(block, SMALL)};
    if (str_eqc(http_req_head(req)->path, "/big")) {
        a.is_stream = true;
        a.stream_size = BIG;
        http_respond(req, &a);
        pump(req, user);
    } else {
        http_respond(req, &a);
    }
}

static _Noreturn void serve(int tell)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static const struct http_handler handler = {.on_head = on_head, .on_end = on_end};
    struct tls_server *tls = NULL;
    struct http_server *s[2] = {NULL, NULL};
    uint16_t port[2];
    struct http_server_opts o = {.name = "bench", .n_loops = N_THREADS};
    if (tls_server_new(cert_path, key_path, &tls, NULL) < 0) {
        _exit(1);
    }
    for (int i = 0; i < 2; i++) {
        o.tls = i ? tls : NULL;
        if (http_server_new(&o, &handler, NULL, &s[i], NULL) < 0 ||
            http_server_listen(s[i], "127.0.0.1", 0, NULL) < 0) {
            _exit(1);
        }
        port[i] = http_server_port(s[i]);
    }
    if (file_write_all(tell, port, sizeof(port)) < 0) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
}

static int start_ours(struct server *sv)
{
    int p[2];
    if (pipe(p) < 0) {
        return -errno;
    }
    fflush(stdout);
    sv->pid = fork();
    if (sv->pid == 0) {
        close(p[0]);
        serve(p[1]);
    }
    close(p[1]);
    ssize_t n = read(p[0], sv->port, sizeof(sv->port));
    close(p[0]);
    return n == (ssize_t)sizeof(sv->port) ? 0 : -EIO;
}

static uint16_t free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    if (bind(fd, (struct sockaddr *)&a, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
        abort();
    }
    close(fd);
    return ntohs(a.sin_port);
}

static void write_file(const char *name, struct str text)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (file_write_atomic(path, text, 0644, NULL) < 0) {
        abort();
    }
}

static int start_nginx(struct server *sv)
{
    if (access("/usr/sbin/nginx", X_OK) < 0) {
        return -ENOENT;
    }
    sv->port[0] = free_port();
    sv->port[1] = free_port();
    AUTO_BUF conf;
    buf_init(&conf, 8192);
    buf_fmt(&conf,
            "daemon off; worker_processes %d; pid %s/nginx.pid; error_log %s/nginx.log;\n%s",
            N_THREADS, dir, dir, geteuid() == 0 ? "user root;\n" : "");
    buf_fmt(&conf,
            "events { worker_connections 1024; }\nhttp { access_log off; keepalive_requests "
            "1000000000; sendfile on;\n"
            "open_file_cache max=10;\nserver { listen 127.0.0.1:%u; listen 127.0.0.1:%u ssl; "
            "root %s;\n"
            "ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2 TLSv1.3; } }\n",
            sv->port[0], sv->port[1], dir, cert_path, key_path);
    write_file("nginx.conf", buf_str(&conf));
    write_file("small", str_n(block, SMALL));
    AUTO_FREE char *big = calloc(1, BIG);
    if (!big) {
        abort();
    }
    write_file("big", str_n(big, BIG));
    char conf_path[160];
    snprintf(conf_path, sizeof(conf_path), "%s/nginx.conf", dir);
    fflush(stdout);
    sv->pid = fork();
    if (sv->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        execl("/usr/sbin/nginx", "nginx", "-e", "/dev/null", "-c", conf_path, (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < 200; i++) {
        int fd = tc_connect(sv->port[1]);
        if (fd >= 0) {
            close(fd);
            return 0;
        }
        usleep(10000);
    }
    return -ETIMEDOUT;
}

static void stop(struct server *sv)
{
    if (sv->pid > 0) {
        kill(sv->pid, SIGTERM);
        waitpid(sv->pid, NULL, 0);
    }
}

/* CPU seconds of one process so far. */
static double cpu_of(const char *pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (file_read(path, 4096, &text, &n, NULL) < 0) {
        return 0;
    }
    const char *end = strrchr(text, ')');
    struct str rest = str_c(end ? end + 2 : ""), field = STR_NONE;
    uint64_t ticks = 0, v = 0;
    for (int i = 3; i <= 15 && str_next(&rest, ' ', &field);
         i++) { /* 14 utime, 15 stime: proc(5) */
        if (i >= 14 && num_u64(field, UINT64_MAX, &v) == 0) {
            ticks += v;
        }
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* With the workers it has forked. */
static double cpu(const struct server *sv)
{
    char pid[16], path[96];
    snprintf(pid, sizeof(pid), "%d", (int)sv->pid);
    snprintf(path, sizeof(path), "/proc/%s/task/%s/children", pid, pid);
    double sum = cpu_of(pid);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (file_read(path, 4096, &text, &n, NULL) == 0) {
        struct str rest = str_n(text, n), kid = STR_NONE;
        while (str_next(&rest, ' ', &kid)) {
            char k[16];
            if (kid.n && kid.n < sizeof(k)) {
                memcpy(k, kid.p, kid.n);
                k[kid.n] = '\0';
                sum += cpu_of(k);
            }
        }
    }
    return sum;
}

/* ---- load ---- */

struct load {
    uint16_t port;
    bool is_tls, is_big;
    unsigned n_conns;
    uint64_t n_done;
};

static size_t receive(struct tc *c, char *p, size_t n)
{
    ssize_t got = c->ssl ? SSL_read(c->ssl, p, (int)n) : recv(c->fd, p, n, 0);
    if (got <= 0) {
        fprintf(stderr, "http_bench: the server closed a connection\n");
        exit(1);
    }
    return (size_t)got;
}

/* The size of a whole answer: all answers to one request are as long. */
static size_t answer_size(struct tc *c, const char *request, size_t body)
{
    static const size_t room = 65536;
    AUTO_FREE char *p = malloc(room + 1);
    assert(p);
    tc_send(c, request);
    size_t n = 0;
    const char *end = NULL;
    while (!end) {
        n += receive(c, p + n, room - n);
        p[n] = '\0';
        end = strstr(p, "\r\n\r\n");
    }
    size_t size = (size_t)(end - p) + 4 + body;
    while (n < size) {
        n += receive(c, p, MIN(room, size - n));
    }
    return size;
}

static void *load_main(void *ctx)
{
    struct load *ld = ctx;
    struct tc conns[N_CONNS];
    const char *request = ld->is_big ? "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                     : "GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
    size_t request_n = strlen(request), size = 0;
    AUTO_FREE char *p = malloc(1 << 20);
    assert(p);
    for (unsigned i = 0; i < ld->n_conns; i++) {
        if (tc_open(&conns[i], ld->port, ld->is_tls ? ca_path : NULL, 0) < 0) {
            fprintf(stderr, "http_bench: cannot connect\n");
            exit(1);
        }
        size = answer_size(&conns[i], request, ld->is_big ? BIG : SMALL);
    }
    for (uint64_t t0 = time_mono_ns(); time_mono_ns() - t0 < RUN_NS;) {
        for (unsigned i = 0; i < ld->n_conns; i++) {
            tc_send_n(&conns[i], request, request_n);
        }
        for (unsigned i = 0; i < ld->n_conns; i++) {
            for (size_t n = 0; n < size;) {
                n += receive(&conns[i], p, MIN((size_t)1 << 20, size - n));
            }
            ld->n_done++;
        }
    }
    for (unsigned i = 0; i < ld->n_conns; i++) {
        tc_close(&conns[i]);
    }
    return NULL;
}

/* CPU seconds of the server for 100,000 small answers, or for a GiB. */
static double measure(const struct server *sv, bool is_tls, bool is_big)
{
    pthread_t t[N_THREADS];
    struct load ld[N_THREADS];
    double before = cpu(sv);
    uint64_t n = 0;
    for (int i = 0; i < N_THREADS; i++) {
        ld[i] = (struct load){.port = sv->port[is_tls],
                              .is_tls = is_tls,
                              .is_big = is_big,
                              .n_conns = is_big ? 2 : N_CONNS};
        if (pthread_create(&t[i], NULL, load_main, &ld[i])) {
            abort();
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(t[i], NULL);
        n += ld[i].n_done;
    }
    double used = cpu(sv) - before;
    return is_big ? used / ((double)n * BIG / (double)(1 << 30)) : used * 1e5 / (double)n;
}

/* ---- rows ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void row(const char *name, const double *v, const char *unit, double target)
{
    double s[N_ROUNDS];
    memcpy(s, v, sizeof(s));
    qsort(s, N_ROUNDS, sizeof(s[0]), by_value);
    double mid = s[N_ROUNDS / 2];
    const char *ok = target <= 0 ? "null" : mid <= target ? "true" : "false";
    if (is_json) {
        printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"target\":%.3f,\"ok\":%s,"
               "\"range\":[%.3f,%.3f]}\n",
               name, mid, unit, target, ok, s[0], s[N_ROUNDS - 1]);
    } else {
        printf("%-34s %8.3f %-12s [%.3f, %.3f]", name, mid, unit, s[0], s[N_ROUNDS - 1]);
        printf(target > 0 ? "  target %.2f: %s\n" : "\n", target,
               mid <= target ? "ok" : "missed");
    }
    fflush(stdout);
}

static void compare(const char *name, const struct server *ours, const struct server *nginx,
                    bool is_tls, bool is_big)
{
    double a[N_ROUNDS], b[N_ROUNDS], ratio[N_ROUNDS];
    const char *unit = is_big ? "CPU s/GiB" : "CPU s/100k";
    char text[64];
    for (int i = 0; i < N_ROUNDS; i++) { /* turn by turn: a busy minute hits both */
        a[i] = measure(ours, is_tls, is_big);
        b[i] = nginx->pid > 0 ? measure(nginx, is_tls, is_big) : 1;
        ratio[i] = a[i] / b[i];
    }
    row(name, a, unit, 0);
    if (nginx->pid > 0) {
        snprintf(text, sizeof(text), "%s.nginx", name);
        row(text, b, unit, 0);
        snprintf(text, sizeof(text), "%s.ratio", name);
        row(text, ratio, "x nginx", is_big ? 1.5 : 1.0);
    }
}

static void remove_files(void)
{
    static const char *const names[] = {"ca.pem",    "server.pem", "server.key", "nginx.conf",
                                        "nginx.log", "nginx.pid",  "small",      "big"};
    char path[160];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void make_certificate(void)
{
    struct x509_pair ca = {0}, p = {0};
    struct str name = STR("localhost");
    snprintf(ca_path, sizeof(ca_path), "%s/ca.pem", dir);
    snprintf(cert_path, sizeof(cert_path), "%s/server.pem", dir);
    snprintf(key_path, sizeof(key_path), "%s/server.key", dir);
    if (x509_make_ca(STR("bench"), 2, &ca, NULL) < 0 ||
        x509_issue(&ca, &name, 1, 1, &p, NULL) < 0 ||
        x509_save(&p, cert_path, key_path, NULL) < 0) {
        abort();
    }
    write_file("ca.pem", str_c(ca.cert_pem));
    x509_pair_done(&ca);
    x509_pair_done(&p);
}

int main(int argc, char **argv)
{
    is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    signal(SIGPIPE, SIG_IGN);
    memset(block, 'b', sizeof(block));
    snprintf(dir, sizeof(dir), "/tmp/http-bench-XXXXXX");
    if (!mkdtemp(dir)) {
        return 1;
    }
    make_certificate();
    struct server ours = {0}, nginx = {0};
    int r = start_ours(&ours);
    if (r == 0 && start_nginx(&nginx) < 0) {
        stop(&nginx);
        nginx.pid = 0;
    }
    if (r == 0) {
        compare("http.small", &ours, &nginx, false, false);
        compare("http.small_tls", &ours, &nginx, true, false);
        compare("http.bulk_tls", &ours, &nginx, true, true);
    }
    stop(&ours);
    stop(&nginx);
    remove_files();
    return r == 0 ? 0 : 1;
}
