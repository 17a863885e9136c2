/* Runs inside a small guest as its only program (static, no libraries): checks the disk
 * /dev/vda for as long as the host wants and says on the console what it saw.
 *   vutool: ready serial=S size=N
 *   vutool: n=N longest=MS                  once a second
 *   vutool: size=N                          the disk has grown under way
 *   vutool: verified n=N longest=MS         everything read once more; then it powers off
 *   vutool: WRONG ...                       anything else
 * Workers are processes with a part of the disk each: random writes of stamped blocks, reads
 * that are compared, discards, zeroes, flushes, past the guest's cache (O_DIRECT). */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DISK      "/dev/vda"
#define BLOCK     4096u
#define N_WORKERS 4u
#define N_BLOCKS  1024u /* of a worker */
#define RUN_S     20u

struct shared {
    uint64_t n[N_WORKERS], longest_ms[N_WORKERS];
    char wrong[N_WORKERS][160];
    int is_over;
};
static struct shared *s;
static int console = 1;

static void say(const char *text)
{
    (void)(write(console, text, strlen(text)) < 0);
}

static uint64_t now_ms(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void stamp(uint64_t *p, uint64_t block, uint64_t version)
{
    uint64_t x = block * UINT64_C(0x9e3779b97f4a7c15) ^ version;
    p[0] = block;
    p[1] = version;
    for (size_t i = 2; i < BLOCK / sizeof(*p); i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        p[i] = x;
    }
}

static bool is_right(const uint64_t *p, uint64_t block, uint64_t version)
{
    static uint64_t want[BLOCK / sizeof(uint64_t)];
    if (version == 0) {
        memset(want, 0, sizeof(want));
    } else {
        stamp(want, block, version);
    }
    return memcmp(p, want, BLOCK) == 0;
}

static void check(unsigned w, int fd, uint64_t *p, uint64_t block, uint64_t version)
{
    if (pread(fd, p, BLOCK, (off_t)(block * BLOCK)) != (ssize_t)BLOCK) {
        snprintf(s->wrong[w], sizeof(s->wrong[w]), "read of block %llu: %s",
                 (unsigned long long)block, strerror(errno));
    } else if (!is_right(p, block, version)) {
        snprintf(s->wrong[w], sizeof(s->wrong[w]),
                 "block %llu: found block %llu version %llu, want version %llu",
                 (unsigned long long)block, (unsigned long long)p[0], (unsigned long long)p[1],
                 (unsigned long long)version);
    }
}

static void change(unsigned w, int fd, uint64_t *p, uint64_t block, uint64_t *version, int how)
{
    uint64_t range[2] = {block * BLOCK, BLOCK};
    static uint64_t next = 1;
    int rc = 0;
    if (how == 0) { /* zeros from now on */
        rc = ioctl(fd, BLKZEROOUT, range);
        *version = 0;
    } else if (how == 1) { /* what a discarded block reads as is open: zeros make it certain */
        rc = ioctl(fd, BLKDISCARD, range);
        rc = rc < 0 ? rc : ioctl(fd, BLKZEROOUT, range);
        *version = 0;
    } else if (how == 2) {
        rc = fdatasync(fd);
    } else {
        *version = ++next;
        stamp(p, block, *version);
        rc = pwrite(fd, p, BLOCK, (off_t)(block * BLOCK)) == (ssize_t)BLOCK ? 0 : -1;
    }
    if (rc < 0) {
        snprintf(s->wrong[w], sizeof(s->wrong[w]), "operation %d on block %llu: %s", how,
                 (unsigned long long)block, strerror(errno));
    }
}

static int work(unsigned w)
{
    static uint64_t versions[N_BLOCKS];
    int fd = open(DISK, O_RDWR | O_DIRECT);
    uint64_t *p = aligned_alloc(BLOCK, BLOCK), x = w + 99;
    if (fd < 0 || !p) {
        snprintf(s->wrong[w], sizeof(s->wrong[w]), "open: %s", strerror(errno));
        return 1;
    }
    while (!__atomic_load_n(&s->is_over, __ATOMIC_ACQUIRE) && !s->wrong[w][0]) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned i = (unsigned)(x >> 33) % N_BLOCKS, how = (unsigned)(x >> 20) % 100;
        uint64_t block = (uint64_t)i * N_WORKERS + w, start = now_ms();
        if (how < 40) {
            check(w, fd, p, block, versions[i]);
        } else {
            change(w, fd, p, block, &versions[i], (int)how - 40);
        }
        uint64_t ms = now_ms() - start;
        s->longest_ms[w] = ms > s->longest_ms[w] ? ms : s->longest_ms[w];
        s->n[w]++;
    }
    for (unsigned i = 0; i < N_BLOCKS && !s->wrong[w][0]; i++) {
        check(w, fd, p, (uint64_t)i * N_WORKERS + w, versions[i]);
    }
    return 0;
}

static uint64_t disk_size(void)
{
    uint64_t n = 0;
    int fd = open(DISK, O_RDONLY);
    if (fd >= 0) {
        (void)(ioctl(fd, BLKGETSIZE64, &n) < 0);
        close(fd);
    }
    return n;
}

static void say_state(const char *what)
{
    char line[256];
    uint64_t n = 0, longest = 0;
    for (unsigned w = 0; w < N_WORKERS; w++) {
        n += s->n[w];
        longest = s->longest_ms[w] > longest ? s->longest_ms[w] : longest;
        if (s->wrong[w][0]) {
            snprintf(line, sizeof(line), "vutool: WRONG %s\n", s->wrong[w]);
            say(line);
        }
    }
    snprintf(line, sizeof(line), "vutool: %sn=%llu longest=%llu\n", what, (unsigned long long)n,
             (unsigned long long)longest);
    say(line);
}

int main(void)
{
    char line[160], serial[32] = "";
    console = open("/dev/console", O_WRONLY);
    int fd = open("/sys/block/vda/serial", O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, serial, sizeof(serial) - 1);
    serial[got > 0 ? got : 0] = '\0';
    serial[strcspn(serial, "\n")] = '\0';
    uint64_t size = disk_size();
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        return 1;
    }
    snprintf(line, sizeof(line), "vutool: ready serial=%s size=%llu\n", serial,
             (unsigned long long)size);
    say(line);
    for (unsigned w = 0; w < N_WORKERS; w++) {
        if (fork() == 0) {
            _exit(work(w));
        }
    }
    for (unsigned i = 0; i < RUN_S; i++) {
        sleep(1);
        say_state("");
        if (disk_size() != size) {
            size = disk_size();
            snprintf(line, sizeof(line), "vutool: size=%llu\n", (unsigned long long)size);
            say(line);
        }
    }
    __atomic_store_n(&s->is_over, 1, __ATOMIC_RELEASE);
    while (wait(NULL) > 0) {}
    say_state("verified ");
    sync();
    reboot(RB_POWER_OFF);
    return 0;
}
