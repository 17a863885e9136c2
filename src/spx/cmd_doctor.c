#include "base/time.h"
#include "codec/json.h"
#include "model/node.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/doctor.h"
#include "spx/table.h"
#include <errno.h>
#include <stdio.h>

/* What spx-compute found when it ran a guest on the processor. */
static void look_at_accel(struct spx *s, struct doctor *d)
{
    struct recs r;
    struct err e = ERR_INIT;
    const char *prefix =
        arena_cstr(s->arena, arena_fmt(s->arena, "node/%s/facts", s->cfg->node));
    if (spx_state(s, &e) < 0 || data_load(s, prefix, &node_facts_desc, &r, &e) < 0) {
        return; /* the line of the services says it */
    }
    for (size_t i = 0; i < r.n; i++) {
        const struct node_facts *f = recs_at(&r, struct node_facts, i);
        bool is_kvm = str_eqc(f->accel, "kvm");
        doctor_add(d, "guests", is_kvm ? DOCTOR_OK : DOCTOR_WARN,
                   is_kvm ? NULL : "see the lines cpu and kvm", "%s%s%.*s",
                   is_kvm ? "run on KVM" : "are emulated", f->accel_reason.n > 0 ? ": " : "",
                   STR_ARG(f->accel_reason));
    }
}

void doctor_services(struct spx *s, struct doctor *d)
{
    size_t n_well = 0;
    for (size_t i = 0; i < s->cfg->n_services; i++) {
        AUTO(json_freep) struct json *j = NULL;
        struct err e = ERR_INIT;
        const char *name = s->cfg->services[i];
        const char *sock = arena_cstr(s->arena, arena_fmt(s->arena, "%s.sock", name));
        if (spx_call(s, sock, "health", STR("{}"), -1, 3 * NS_PER_S, &j, &e) < 0) {
            doctor_add(d, "services", DOCTOR_FAIL,
                       "start it: 'spx up', or 'systemctl start spinifex.target'",
                       "spx-%s does not answer: %s", name, e.msg);
        } else if (!str_eqc(json_get_str(j, "status"), "ok")) {
            struct str st = json_get_str(j, "status");
            doctor_add(d, "services", DOCTOR_WARN, "its log tells why",
                       "spx-%s says that it is %.*s", name, STR_ARG(st));
        } else {
            n_well++;
        }
    }
    if (n_well == s->cfg->n_services) {
        doctor_add(d, "services", DOCTOR_OK, NULL, "all %zu are well", n_well);
    }
}

static const char *word_of(enum doctor_state s)
{
    return s == DOCTOR_OK ? "ok" : s == DOCTOR_WARN ? "warning" : "FAULT";
}

static void print(struct spx *s, const struct doctor *d)
{
    static const struct table_col cols[] = {
        {"CHECK", "check"}, {"STATE", "state"}, {"WHAT", "what"}, {"CURE", "cure"}};
    if (s->is_json) {
        struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
        for (size_t i = 0; i < d->n; i++) {
            table_cstr(t, d->v[i].name);
            table_cstr(t, d->v[i].state == DOCTOR_FAIL ? "fault" : word_of(d->v[i].state));
            table_str(t, d->v[i].what);
            table_str(t, d->v[i].cure);
        }
        table_print(t, true);
        return;
    }
    bool is_brief = spx_is_set(s, "--quick");
    for (size_t i = 0; i < d->n; i++) {
        const struct doctor_finding *f = &d->v[i];
        if (is_brief && f->state == DOCTOR_OK) {
            continue;
        }
        printf("%-10s %-8s %.*s\n", f->name, word_of(f->state), STR_ARG(f->what));
        if (str_is_set(f->cure)) {
            printf("%-10s %-8s -> %.*s\n", "", "", STR_ARG(f->cure));
        }
    }
}

int cmd_doctor(struct spx *s, struct err *err)
{
    struct doctor d = {.a = s->arena, .root = ""};
    struct err e = ERR_INIT;
    int r = spx_config(s, &e);
    doctor_host(&d, r == 0 ? s->cfg->data_dir : "/var/lib/spinifex");
    if (r == 0) {
        doctor_net(&d, s->cfg);
    } else {
        doctor_add(&d, "config", r == -ENOENT ? DOCTOR_WARN : DOCTOR_FAIL,
                   r == -ENOENT ? "spx admin init --node node1 --nodes 1" : "spx config check",
                   "%s", e.msg);
    }
    if (r == 0 && !spx_is_set(s, "--quick")) {
        doctor_services(s, &d);
        look_at_accel(s, &d);
    }
    print(s, &d);
    size_t n = 0;
    for (size_t i = 0; i < d.n; i++) {
        n += d.v[i].state == DOCTOR_FAIL;
    }
    return n == 0 ? 0
                  : fail(err, -ENOEXEC, "HostNotFit", "%zu %s above must be cured", n,
                         n == 1 ? "fault" : "faults");
}
