#include "awsgw/perm.h"

#include "model/keys.h"

#include <errno.h>

static bool is_account(struct str s)
{
    bool is_ok = s.n == ACCOUNT_ID_LEN;
    for (size_t i = 0; i < s.n; i++) {
        is_ok = is_ok && s.p[i] >= '0' && s.p[i] <= '9';
    }
    return is_ok;
}

int perm_note(struct perm_change *c, bool is_removal, struct str user_id, struct str group,
              struct err *err)
{
    if (str_is_set(group)) {
        if (!str_eqc(group, "all")) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Value (%.*s) for parameter group is invalid. The only group is 'all'.",
                        STR_ARG(group));
        }
        *(is_removal ? &c->is_all_removed : &c->is_all_added) = true;
    }
    if (!str_is_set(user_id)) {
        return 0;
    }
    if (!is_account(user_id)) {
        return fail(err, -EINVAL, "InvalidUserID.Malformed",
                    "Invalid user id: \"%.*s\" (expecting an account id of 12 digits)",
                    STR_ARG(user_id));
    }
    if (c->n_add + c->n_remove == PERM_CHANGES_MAX) {
        return fail(err, -E2BIG, "ResourceCountExceeded",
                    "At most %u permissions can be changed by one request.", PERM_CHANGES_MAX);
    }
    if (is_removal) {
        c->remove[c->n_remove++] = user_id;
    } else {
        c->add[c->n_add++] = user_id;
    }
    return 0;
}

int perm_note_lists(struct perm_change *c, struct str operation,
                    const struct aws_str_list *users, const struct aws_str_list *groups,
                    struct err *err)
{
    if (users->n + groups->n == 0) {
        return 0;
    }
    if (!str_is_set(operation)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter OperationType");
    }
    bool is_removal = str_eqc(operation, "remove");
    int r = 0;
    for (size_t i = 0; r == 0 && i < users->n; i++) {
        r = perm_note(c, is_removal, users->v[i], STR_NONE, err);
    }
    for (size_t i = 0; r == 0 && i < groups->n; i++) {
        r = perm_note(c, is_removal, STR_NONE, groups->v[i], err);
    }
    return r;
}

bool perm_is_empty(const struct perm_change *c)
{
    return c->n_add + c->n_remove == 0 && !c->is_all_added && !c->is_all_removed;
}

bool perm_has(struct str_list accounts, struct str account)
{
    for (size_t i = 0; i < accounts.n; i++) {
        if (str_eq(accounts.v[i], account)) {
            return true;
        }
    }
    return false;
}

int perm_apply(struct arena *a, const struct perm_change *c, struct str_list *accounts,
               bool *is_public, struct err *err)
{
    struct str *v = arena_xalloc(a, (accounts->n + c->n_add + 1) * sizeof(*v));
    struct str_list now = {v, 0};
    const struct str_list gone = {(struct str *)(uintptr_t)c->remove, c->n_remove};
    for (size_t i = 0; i < accounts->n; i++) {
        if (!perm_has(gone, accounts->v[i])) {
            v[now.n++] = accounts->v[i];
        }
    }
    for (size_t i = 0; i < c->n_add; i++) {
        if (!perm_has(now, c->add[i])) {
            v[now.n++] = c->add[i];
        }
    }
    if (now.n > PERM_MAX) {
        return fail(err, -E2BIG, "ResourceLimitExceeded",
                    "At most %u accounts can be named by one list of permissions.", PERM_MAX);
    }
    *accounts = now;
    *is_public = (*is_public || c->is_all_added) && !c->is_all_removed;
    return 0;
}
