/* minitool.c — what the small image needs and busybox does not have: metadata, growing the
 * root, the power button. It runs inside a guest, linked statically, and uses nothing of src/:
 * it stands for any other operating system there. minitool imds [-w SECONDS] [-1] PATH body of
 * http://169.254.169.254/latest/PATH; -1 without a token (IMDSv1) minitool http [-X METHOD] [-H
 * HEADER]... [-d BODY] [-i] [-t SECONDS] http://ADDRESS[:PORT]/PATH minitool grow DISK
 * PARTITION MOUNTPOINT       partition and ext4 to the end of the disk, while mounted minitool
 * powerbutton                          waits for the ACPI power button and tells init to power
 * off Exit status of imds and http: 0 for 2xx, 4 for 404, 3 for any other status, 7 when nobody
 * answered, 2 for bad usage. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <linux/input.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#define IMDS_URL    "http://169.254.169.254/latest/"
#define REPLY_MAX   (16u << 20)
#define N_HEADERS   16
#define N_POLL      16
#define EXIT_USAGE  2
#define EXIT_HTTP   3
#define EXIT_404    4
#define EXIT_NOBODY 7
/* _IOW('f', 16, __u64) of the kernel's ext4; not in the headers of user space. */
#define EXT4_RESIZE _IOW('f', 16, uint64_t)

struct request {
    const char *method, *url, *body;
    const char *headers[N_HEADERS];
    size_t n_headers;
    unsigned timeout_s;
    bool with_head;
};
struct reply {
    char *p;
    size_t n, head; /* head: bytes before the body */
    int status;
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int number(const char *s, unsigned max, unsigned *ret)
{
    unsigned v = 0;
    if (!*s) {
        return -1;
    }
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || (v = v * 10 + (unsigned)(*s - '0')) > max) {
            return -1;
        }
    }
    *ret = v;
    return 0;
}

/* "http://10.0.0.1:80/path" -> address and path; names are not looked up here. */
static int url_split(const char *url, struct sockaddr_in *ret_addr, const char **ret_path)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof(scheme) - 1) != 0) {
        return -1;
    }
    const char *host = url + sizeof(scheme) - 1, *path = strchr(host, '/');
    size_t n = path ? (size_t)(path - host) : strlen(host);
    char buf[64];
    if (n >= sizeof(buf)) {
        return -1;
    }
    memcpy(buf, host, n);
    buf[n] = '\0';
    unsigned port = 80;
    char *colon = strchr(buf, ':');
    if (colon) {
        *colon = '\0';
        if (number(colon + 1, 65535, &port) != 0) {
            return -1;
        }
    }
    *ret_addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    *ret_path = path ? path : "/";
    return inet_pton(AF_INET, buf, &ret_addr->sin_addr) == 1 ? 0 : -1;
}

static int wait_for(int fd, short events, uint64_t deadline_ms)
{
    uint64_t now = now_ms();
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, now >= deadline_ms ? 0 : (int)(deadline_ms - now));
    return n > 0 ? 0 : -1;
}

static int exchange(int fd, const struct sockaddr_in *addr, const char *req, size_t n_req,
                    uint64_t deadline_ms, struct reply *r)
{
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) != 0 &&
        errno != EINPROGRESS) {
        return -1;
    }
    for (size_t off = 0; off < n_req;) {
        if (wait_for(fd, POLLOUT, deadline_ms) != 0) {
            return -1;
        }
        ssize_t n = send(fd, req + off, n_req - off, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        }
        off += n > 0 ? (size_t)n : 0;
    }
    size_t cap = 0;
    for (;;) {
        if (r->n + 4096 > cap) {
            cap = cap ? cap * 2 : 16384;
            r->p = cap <= REPLY_MAX ? realloc(r->p, cap) : NULL;
            if (!r->p) {
                return -1;
            }
        }
        if (wait_for(fd, POLLIN, deadline_ms) != 0) {
            return -1;
        }
        ssize_t n = recv(fd, r->p + r->n, cap - r->n - 1, 0);
        if (n == 0) {
            r->p[r->n] = '\0';
            return 0;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        }
        r->n += n > 0 ? (size_t)n : 0;
        /* Some servers keep the connection although asked not to: stop at Content-Length. */
        r->p[r->n] = '\0';
        char *end = strstr(r->p, "\r\n\r\n");
        char *len = end ? strcasestr(r->p, "\ncontent-length:") : NULL;
        if (len && len < end) {
            len += 16;
            len += strspn(len, " ");
            char digits[12] = {0};
            memcpy(digits, len,
                   strspn(len, "0123456789") < 11 ? strspn(len, "0123456789") : 11);
            unsigned want = 0;
            if (number(digits, REPLY_MAX, &want) == 0 &&
                r->n >= (size_t)(end + 4 - r->p) + want) {
                return 0;
            }
        }
    }
}

/* 0 when an HTTP answer came (r->status says which), -1 when nobody answered. */
static int http_do(const struct request *q, struct reply *r)
{
    struct sockaddr_in addr;
    const char *path = NULL;
    if (url_split(q->url, &addr, &path) != 0) {
        fprintf(stderr, "minitool: bad URL (an IPv4 address is needed): %s\n", q->url);
        exit(EXIT_USAGE);
    }
    char *req = NULL;
    size_t n_req = 0;
    FILE *f = open_memstream(&req, &n_req);
    if (!f) {
        return -1;
    }
    char host[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &addr.sin_addr, host, sizeof(host));
    fprintf(f, "%s %s HTTP/1.1\r\nHost: %s:%u\r\nConnection: close\r\n", q->method, path, host,
            ntohs(addr.sin_port));
    for (size_t i = 0; i < q->n_headers; i++) {
        fprintf(f, "%s\r\n", q->headers[i]);
    }
    if (q->body || strcmp(q->method, "PUT") == 0 || strcmp(q->method, "POST") == 0) {
        fprintf(f, "Content-Length: %zu\r\n", q->body ? strlen(q->body) : 0);
    }
    fprintf(f, "\r\n%s", q->body ? q->body : "");
    fclose(f);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : exchange(fd, &addr, req, n_req, now_ms() + q->timeout_s * 1000u, r);
    close(fd);
    free(req);
    if (rc != 0 || r->n < 12 || strncmp(r->p, "HTTP/1.", 7) != 0) {
        return -1;
    }
    const char *end = strstr(r->p, "\r\n\r\n");
    char code[4] = {r->p[9], r->p[10], r->p[11], '\0'};
    unsigned status = 0;
    if (!end || number(code, 599, &status) != 0) {
        return -1;
    }
    r->head = (size_t)(end + 4 - r->p);
    r->status = (int)status;
    return 0;
}

static int show(const struct reply *r, bool with_head)
{
    bool is_ok = r->status >= 200 && r->status < 300;
    if (is_ok || with_head) {
        size_t from = with_head ? 0 : r->head;
        fwrite(r->p + from, 1, r->n - from, stdout);
        fflush(stdout);
    }
    return is_ok ? 0 : r->status == 404 ? EXIT_404 : EXIT_HTTP;
}

static int cmd_http(int argc, char **argv)
{
    struct request q = {.method = "GET", .timeout_s = 5};
    struct reply r = {0};
    int o;
    while ((o = getopt(argc, argv, "X:H:d:it:")) != -1) {
        if (o == 'X') {
            q.method = optarg;
        } else if (o == 'H' && q.n_headers < N_HEADERS) {
            q.headers[q.n_headers++] = optarg;
        } else if (o == 'd') {
            q.body = optarg;
        } else if (o == 'i') {
            q.with_head = true;
        } else if (o != 't' || number(optarg, 3600, &q.timeout_s) != 0) {
            return EXIT_USAGE;
        }
    }
    if (optind + 1 != argc) {
        return EXIT_USAGE;
    }
    q.url = argv[optind];
    return http_do(&q, &r) == 0 ? show(&r, q.with_head) : EXIT_NOBODY;
}

static int imds_once(const char *path, bool is_v1, unsigned timeout_s)
{
    struct request q = {
        .method = "PUT", .url = IMDS_URL "api/token", .timeout_s = timeout_s, .n_headers = 1};
    struct reply token = {0}, r = {0};
    char *header = NULL, *url = NULL;
    q.headers[0] = "X-aws-ec2-metadata-token-ttl-seconds: 300";
    if (!is_v1) {
        if (http_do(&q, &token) != 0) {
            return EXIT_NOBODY;
        }
        if (token.status != 200) {
            return EXIT_HTTP;
        }
        if (asprintf(&header, "X-aws-ec2-metadata-token: %s", token.p + token.head) < 0) {
            return EXIT_NOBODY;
        }
        q.headers[0] = header;
    }
    q.n_headers = is_v1 ? 0 : 1;
    q.method = "GET";
    if (asprintf(&url, IMDS_URL "%s", path) < 0) {
        return EXIT_NOBODY;
    }
    q.url = url;
    return http_do(&q, &r) == 0 ? show(&r, false) : EXIT_NOBODY;
}

static int cmd_imds(int argc, char **argv)
{
    unsigned wait_s = 0;
    bool is_v1 = false;
    int o;
    while ((o = getopt(argc, argv, "w:1")) != -1) {
        if (o == '1') {
            is_v1 = true;
        } else if (o != 'w' || number(optarg, 3600, &wait_s) != 0) {
            return EXIT_USAGE;
        }
    }
    if (optind + 1 != argc) {
        return EXIT_USAGE;
    }
    uint64_t end = now_ms() + wait_s * 1000u;
    for (;;) {
        int rc = imds_once(argv[optind], is_v1, 2);
        if (rc != EXIT_NOBODY || now_ms() >= end) {
            return rc;
        }
        usleep(100000);
    }
}

static int read_u64(const char *path, uint64_t *ret)
{
    FILE *f = fopen(path, "r");
    unsigned long long v = 0;
    int n = f ? fscanf(f, "%llu", &v) : 0;
    if (f) {
        fclose(f);
    }
    *ret = v;
    return n == 1 ? 0 : -1;
}

static int grow_partition(int disk, unsigned part, uint64_t start, uint64_t n_sectors)
{
    uint8_t mbr[512];
    if (pread(disk, mbr, sizeof(mbr), 0) != sizeof(mbr) || mbr[510] != 0x55 ||
        mbr[511] != 0xaa) {
        return -1;
    }
    uint8_t *e = mbr + 446 + 16 * (part - 1);
    uint32_t first =
        (uint32_t)e[8] | (uint32_t)e[9] << 8 | (uint32_t)e[10] << 16 | (uint32_t)e[11] << 24;
    if (first != start) {
        return -1; /* not the table that the kernel read: leave it alone */
    }
    for (int i = 0; i < 4; i++) {
        e[12 + i] = (uint8_t)(n_sectors >> (8 * i));
    }
    struct blkpg_partition p = {.start = (long long)(start * 512),
                                .length = (long long)(n_sectors * 512),
                                .pno = (int)part};
    struct blkpg_ioctl_arg a = {.op = BLKPG_RESIZE_PARTITION, .datalen = sizeof(p), .data = &p};
    if (pwrite(disk, mbr, sizeof(mbr), 0) != sizeof(mbr) || fsync(disk) != 0) {
        return -1;
    }
    return ioctl(disk, BLKPG, &a);
}

static int cmd_grow(int argc, char **argv)
{
    unsigned part = 0;
    if (argc != 4 || strlen(argv[1]) > 16 || number(argv[2], 4, &part) != 0 || part < 1) {
        return EXIT_USAGE;
    }
    char path[96];
    uint64_t disk_n = 0, start = 0, part_n = 0;
    snprintf(path, sizeof(path), "/sys/block/%s/size", argv[1]);
    int rc = read_u64(path, &disk_n);
    snprintf(path, sizeof(path), "/sys/block/%s/%s%u/start", argv[1], argv[1], part);
    rc |= read_u64(path, &start);
    snprintf(path, sizeof(path), "/sys/block/%s/%s%u/size", argv[1], argv[1], part);
    rc |= read_u64(path, &part_n);
    snprintf(path, sizeof(path), "/dev/%s", argv[1]);
    int disk = open(path, O_RDWR | O_CLOEXEC);
    if (rc != 0 || disk < 0) {
        fprintf(stderr, "minitool: grow: no such disk or partition\n");
        return 1;
    }
    uint64_t want = disk_n - start;
    want = want > UINT32_MAX ? UINT32_MAX : want; /* what an MBR can say: 2 TiB */
    want &= ~UINT64_C(2047);
    if (disk_n > start && want > part_n && grow_partition(disk, part, start, want) != 0) {
        fprintf(stderr, "minitool: grow: partition: %m\n");
        return 1;
    }
    part_n = want > part_n ? want : part_n;
    int mnt = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct statfs st;
    if (mnt < 0 || fstatfs(mnt, &st) != 0) {
        fprintf(stderr, "minitool: grow: %s: %m\n", argv[3]);
        return 1;
    }
    /* st.f_blocks leaves out the file system's own blocks: asking again for the present size is
     * answered by "nothing to do". */
    uint64_t n_blocks = part_n * 512 / (uint64_t)st.f_bsize;
    if (ioctl(mnt, EXT4_RESIZE, &n_blocks) != 0) {
        fprintf(stderr, "minitool: grow: ext4: %m\n");
        return 1;
    }
    return 0;
}

static int cmd_powerbutton(void)
{
    struct pollfd p[N_POLL];
    nfds_t n = 0;
    DIR *d = opendir("/dev/input");
    for (struct dirent *e = d ? readdir(d) : NULL; e && n < N_POLL; e = readdir(d)) {
        if (strncmp(e->d_name, "event", 5) == 0) {
            int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
            p[n] = (struct pollfd){.fd = fd, .events = POLLIN};
            n += fd >= 0;
        }
    }
    if (n == 0) {
        sleep(5); /* init starts this again: perhaps the device comes */
        return 1;
    }
    for (;;) {
        if (poll(p, n, -1) < 0) {
            continue;
        }
        for (nfds_t i = 0; i < n; i++) {
            struct input_event ev;
            if (!p[i].revents) {
                continue;
            }
            if (read(p[i].fd, &ev, sizeof(ev)) != sizeof(ev)) {
                return 1;
            }
            if (ev.type == EV_KEY && ev.code == KEY_POWER && ev.value == 1) {
                printf("spinifex-mini: power button\n");
                fflush(stdout);
                kill(1, SIGUSR2); /* busybox init: shut down and power off */
            }
        }
    }
}

int main(int argc, char **argv)
{
    const char *cmd = argc > 1 ? argv[1] : "";
    int rc = EXIT_USAGE;
    if (strcmp(cmd, "imds") == 0) {
        rc = cmd_imds(argc - 1, argv + 1);
    } else if (strcmp(cmd, "http") == 0) {
        rc = cmd_http(argc - 1, argv + 1);
    } else if (strcmp(cmd, "grow") == 0) {
        rc = cmd_grow(argc - 1, argv + 1);
    } else if (strcmp(cmd, "powerbutton") == 0) {
        rc = cmd_powerbutton();
    }
    if (rc == EXIT_USAGE) {
        fprintf(stderr, "usage: minitool imds [-w SECONDS] [-1] PATH | http [-X METHOD] [-H "
                        "HEADER] [-d BODY] [-i] [-t SECONDS] URL\n"
                        "       | grow DISK PARTITION MOUNTPOINT | powerbutton\n");
    }
    return rc;
}
