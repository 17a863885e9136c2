#include "spx/ports.h"

#include "base/file.h"
#include "base/num.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TABLE_MAX (16u << 20)

/* The n-th word of a line that is parted by spaces. */
static struct str word(struct str line, unsigned n)
{
    for (;;) {
        while (line.n > 0 && line.p[0] == ' ') {
            line = str_skip(line, 1);
        }
        struct str w = str_cut(line, ' ');
        if (n-- == 0) {
            return w;
        }
        line = str_skip(line, w.n);
        if (line.n == 0) {
            return STR("");
        }
    }
}

/* "sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode": 0A listens. */
uint64_t ports_inode(struct str table, uint16_t port)
{
    char want[8];
    struct str line;
    (void)snprintf(want, sizeof(want), ":%04X", port);
    while (table.p && str_next(&table, '\n', &line)) {
        uint64_t inode = 0;
        if (str_has_suffix(word(line, 1), str_c(want)) && str_eqc(word(line, 3), "0A") &&
            num_u64(word(line, 9), UINT64_MAX, &inode) == 0) {
            return inode;
        }
    }
    return 0;
}

static bool has_socket(const char *fds, uint64_t inode)
{
    char want[40], path[320], got[64];
    (void)snprintf(want, sizeof(want), "socket:[%llu]", (unsigned long long)inode);
    DIR *d = opendir(fds);
    bool found = false;
    for (const struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
        if (snprintf(path, sizeof(path), "%s/%s", fds, e->d_name) >= (int)sizeof(path)) {
            continue;
        }
        ssize_t n = readlink(path, got, sizeof(got) - 1);
        found = n > 0 && str_eqc(str_n(got, (size_t)n), want);
    }
    if (d) {
        closedir(d);
    }
    return found;
}

static void find_owner(struct arena *a, const char *proc, uint64_t inode, struct port_user *u)
{
    char path[300];
    DIR *d = opendir(proc);
    for (const struct dirent *e = d ? readdir(d) : NULL; e && u->pid == 0; e = readdir(d)) {
        uint64_t pid = 0;
        if (!isdigit((unsigned char)e->d_name[0]) ||
            num_u64(str_c(e->d_name), 1u << 30, &pid) < 0) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%u/fd", proc, (unsigned)pid);
        if (has_socket(path, inode)) {
            u->pid = (unsigned)pid;
        }
    }
    if (d) {
        closedir(d);
    }
    char *name = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/%u/comm", proc, u->pid);
    if (u->pid != 0 && file_read(path, 64, &name, &n, NULL) == 0) {
        u->name = arena_cstr(a, arena_str_dup(a, str_trim(str_n(name, n))));
    }
    free(name);
    u->is_ours = str_has_prefixc(str_c(u->name), "spx-");
}

size_t ports_used(struct arena *a, const char *proc, const struct config *c,
                  struct port_user ret[4])
{
    const struct {
        const char *service, *key;
        uint64_t port;
    } want[] = {
        {"awsgw", "awsgw.port", c->awsgw_port},
        {"awsgw", "awsgw.metrics_port", c->metrics_port},
        {"predastore", "predastore.port", c->predastore.port},
    };
    static const char *const tables[] = {"net/tcp", "net/tcp6"};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        uint64_t inode = 0;
        for (size_t t = 0; t < ARRAY_LEN(tables) && inode == 0; t++) {
            char path[300], *text = NULL;
            size_t size = 0;
            (void)snprintf(path, sizeof(path), "%s/%s", proc, tables[t]);
            if (want[i].port != 0 && config_has_service(c, want[i].service) &&
                file_read(path, TABLE_MAX, &text, &size, NULL) == 0) {
                inode = ports_inode(str_n(text, size), (uint16_t)want[i].port);
            }
            free(text);
        }
        if (inode == 0) {
            continue;
        }
        ret[n] = (struct port_user){
            .port = (uint16_t)want[i].port,
            .key = arena_cstr(a, arena_fmt(a, "nodes.%s.%s", c->node, want[i].key)),
            .name = ""};
        find_owner(a, proc, inode, &ret[n++]);
    }
    return n;
}
