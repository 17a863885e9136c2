/* ops.h — everything a file of handlers includes; the prototypes are made from the .ops files.
 * Not here: dispatch (aws/dispatch.h).
 * Threads:  a handler runs on one thread of the pool, from start to end; it may be run again
 *           after -EAGAIN.
 * Memory:   outputs live in call->arena.
 * Errors:   names of AWS's error codes; see aws/errors.h. */
#pragma once
#include "aws/api/ebs.h"
#include "aws/api/ebs_handlers.h"
#include "aws/api/ec2.h"
#include "aws/api/ec2_handlers.h"
#include "aws/api/sts.h"
#include "aws/api/sts_handlers.h"
#include "aws/call.h"
