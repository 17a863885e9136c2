/* admin.h — awsgw.sock: accounts and keys, for the operator (root) on this host.
 * Methods:  account.create {name} -> {account, name, user, access_key_id, secret_access_key};
 *           account.list -> {accounts: [{account, name, status, created_ns}]}; account.delete
 *           {account}; key.create {account, user?} -> {access_key_id, secret_access_key};
 *           health and log.level of every service.
 * Not here: the AWS API.
 * Threads:  requests arrive on the loop and are worked on by the pool.
 * Memory:   admin_start() gives, admin_stop() takes.
 * Errors:   -EPERM "AccessDenied" for anybody but root and our own user. */
#pragma once
#include "awsgw/gw.h"
#include "keys/keys.h"
#include "loop/pool.h"
#include "net/service.h"

struct admin;

MUST_CHECK int admin_start(struct service *svc, struct gw *gw, struct keys *keys,
                           struct pool *pool, struct admin **ret, struct err *err);
void admin_stop(struct admin *ad); /* NULL is fine */
/* Gives every account that has none its default network (accounts made by 'spx admin init'
 * before this service ran). */
MUST_CHECK int admin_ensure_defaults(struct gw *gw, struct err *err);
