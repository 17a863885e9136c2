#include "net/port_holder.h"

#include "base/file.h"
#include "base/num.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define TABLE_MAX        (4u << 20)
#define TCP_LISTEN_STATE "0A"

/* A line of /proc/net/tcp: "  0: 0100007F:1F90 00000000:0000 0A ... uid timeout inode ...".
 * Returns the inode of a listener on 'port', or 0. */
static uint64_t line_inode(struct str line, uint16_t port)
{
    struct str f[10];
    size_t n = 0;
    struct str field = STR_NONE, rest = str_trim(line);
    while (n < ARRAY_LEN(f) && str_next(&rest, ' ', &field)) {
        if (field.n) {
            f[n++] = field;
        }
    }
    uint64_t got = 0, inode = 0;
    if (n < ARRAY_LEN(f) || !str_eqc(f[3], TCP_LISTEN_STATE) || f[1].n < 5 ||
        num_hex_u64(str_skip(f[1], f[1].n - 4), 65535, &got) < 0 || got != port ||
        num_u64(f[9], UINT64_MAX, &inode) < 0) {
        return 0;
    }
    return inode;
}

static uint64_t find_inode(const char *table, uint16_t port)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (file_read(table, TABLE_MAX, &text, &n, NULL) < 0) {
        return 0;
    }
    struct str rest = str_n(text, n), line = STR_NONE;
    while (str_next(&rest, '\n', &line)) {
        uint64_t inode = line_inode(line, port);
        if (inode) {
            return inode;
        }
    }
    return 0;
}

static int holds(const char *pid, const char *want)
{
    char path[300];
    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    DIR *d = opendir(path);
    int is_found = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e && !is_found; e = readdir(d)) {
        char target[64] = "";
        if (readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1) > 0) {
            is_found = strcmp(target, want) == 0;
        }
    }
    if (d) {
        closedir(d);
    }
    return is_found;
}

static void describe(const char *pid, char *p, size_t n)
{
    char path[300];
    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    AUTO_FREE char *comm = NULL;
    size_t comm_n = 0;
    if (file_read(path, 64, &comm, &comm_n, NULL) < 0) {
        snprintf(p, n, "pid %s", pid);
        return;
    }
    struct str name = str_trim(str_n(comm, comm_n));
    snprintf(p, n, "%.*s (pid %s)", STR_ARG(name), pid);
}

void port_holder(uint16_t port, char *p, size_t n)
{
    p[0] = '\0';
    uint64_t inode = find_inode("/proc/net/tcp", port);
    if (!inode) {
        inode = find_inode("/proc/net/tcp6", port);
    }
    DIR *d = inode ? opendir("/proc") : NULL;
    if (!d) {
        return;
    }
    char want[48];
    snprintf(want, sizeof(want), "socket:[%llu]", (unsigned long long)inode);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && holds(e->d_name, want)) {
            describe(e->d_name, p, n);
            break;
        }
    }
    closedir(d);
}
