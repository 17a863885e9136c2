#include "spx/caller.h"

#include "base/file.h"
#include "base/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_ENVIRON (4u << 20)
#define MAX_ABOVE   64u

struct str caller_find(struct str vars, const char *name)
{
    struct str item = STR_NONE, want = str_c(name);
    while (vars.p && str_next(&vars, '\0', &item)) {
        if (item.n > want.n && item.p[want.n] == '=' && str_eq(str_n(item.p, want.n), want)) {
            return str_skip(item, want.n + 1);
        }
    }
    return STR_NONE;
}

/* "12 (sudo) S 11 ...": a name may hold blanks and brackets, so the last one counts. */
bool caller_is_sudo(struct str stat, unsigned *ret_parent)
{
    size_t end = stat.n;
    uint64_t parent = 0;
    *ret_parent = 0;
    while (end > 0 && stat.p[end - 1] != ')') {
        end--;
    }
    ptrdiff_t begin = str_find(stat, '(', 0);
    if (end == 0 || begin < 0 || (size_t)begin + 1 >= end || stat.n < end + 3) {
        return false;
    }
    struct str rest = str_skip(stat, end + 3); /* " S " */
    if (num_u64(str_cut(rest, ' '), 1u << 30, &parent) == 0) {
        *ret_parent = (unsigned)parent;
    }
    return str_eqc(str_n(stat.p + begin + 1, end - (size_t)begin - 2), "sudo");
}

/* The process of the nearest sudo above this one, 0 = none. */
static unsigned find_sudo(void)
{
    unsigned pid = (unsigned)getppid(), parent = 0;
    for (unsigned i = 0; i < MAX_ABOVE && pid > 1; i++, pid = parent) {
        char path[64];
        AUTO_FREE char *text = NULL;
        size_t n = 0;
        (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
        if (file_read(path, 4096, &text, &n, NULL) < 0) {
            return 0;
        }
        if (caller_is_sudo(str_n(text, n), &parent)) {
            return pid;
        }
    }
    return 0;
}

static bool give(struct str v, char *ret, size_t size)
{
    if (!str_is_set(v) || v.n == 0 || v.n >= size) {
        return false;
    }
    memcpy(ret, v.p, v.n);
    ret[v.n] = '\0';
    return true;
}

bool caller_env(const char *name, char *ret, size_t size)
{
    const char *own = getenv(name), *user = getenv("SUDO_USER");
    if (own && own[0]) {
        return give(str_c(own), ret, size);
    }
    unsigned pid = geteuid() == 0 && user && user[0] ? find_sudo() : 0;
    char path[64];
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%u/environ", pid);
    return pid != 0 && file_read(path, MAX_ENVIRON, &text, &n, NULL) == 0 &&
           give(caller_find(str_n(text, n), name), ret, size);
}
