//! Functions of clients and servers: asking for work, for names, for a connection, for rows.

use super::known::table;

table! {
    /// Functions that ask another process for work and are answered when there is some. The
    /// function's own name is matched, in any class or module and any case.
    TAKES_WORK {
        "blpop", "blocking pop", "Redis clients", Service;
        "brpop", "blocking pop", "Redis clients", Service;
        "blmove", "blocking move", "Redis clients", Source;
        "blmpop", "blocking pop", "Redis clients", Source;
        "brpoplpush", "blocking move", "Redis clients", Source;
        "bzpopmin", "blocking pop", "Redis clients", Source;
        "bzpopmax", "blocking pop", "Redis clients", Source;
        "bzmpop", "blocking pop", "Redis clients", Source;
        "xread", "stream", "Redis clients", Source;
        "xreadgroup", "stream", "Redis clients", Source;
        "blocking_call", "any blocking command", "Ruby's redis-client, by which Sidekiq asks", Service;
        "blocking_call_v", "any blocking command", "Ruby's redis-client", Service;
        "rd_kafka_consumer_poll", "consumer", "librdkafka", Source;
        "rd_kafka_consume_batch", "consumer", "librdkafka", Source;
        "rd_kafka_consume_batch_queue", "consumer", "librdkafka", Source;
    }
}

table! {
    /// Functions that resolve a name to an address.
    RESOLVERS {
        "getaddrinfo*", "DNS", "C library", Live;
        "gethostbyname*", "DNS", "C library", Live;
        "gethostbyaddr*", "DNS", "C library", Live;
        "getnameinfo*", "DNS", "C library", Live;
        "__res_*", "DNS", "glibc, libresolv", Live;
        "res_nsend*", "DNS", "libresolv", Live;
        "res_nquery*", "DNS", "libresolv", Live;
        "res_send*", "DNS", "libresolv", Live;
        "res_query*", "DNS", "libresolv", Live;
        "ares_*", "DNS", "c-ares", Source;
        "net.(*Resolver)*", "DNS", "Go", Source;
        "java.net.InetAddress*", "DNS", "JDK", Source;
    }
}

table! {
    /// Functions below which Go's servers handle a request: a wait there holds up a caller.
    GO_HANDLERS {
        "*net/http.serverHandler.ServeHTTP*", "HTTP", "Go", Live;
        "*net/http.HandlerFunc.ServeHTTP*", "HTTP", "Go", Live;
        "*google.golang.org/grpc.(*Server).processUnaryRPC*", "gRPC", "grpc-go", Source;
        "*net/rpc.(*service).call*", "RPC", "Go", Source;
        "*github.com/valyala/fasthttp.(*Server).serveConn*", "HTTP", "fasthttp", Source;
    }
}

table! {
    /// Functions in which goroutines wait for the answer to a request, by a channel from the connection's reader.
    GO_ANSWERS {
        "*net/http.(*persistConn).roundTrip*", "HTTP", "Go", Live;
        "*http2ClientConn).roundTrip*", "HTTP/2", "Go", Source;
    }
}

table! {
    /// Functions in which goroutines wait for a pool's connection. Pools wait by a channel, as
    /// other code does.
    GO_POOLS {
        "*database/sql.(*DB).conn*", "database connections", "Go", Live;
        "*net/http.(*Transport).getConn*", "HTTP connections", "Go", Live;
        "*(*ConnPool).waitTurn*", "Redis connections", "go-redis", Source;
        "*github.com/jackc/puddle/*", "PostgreSQL connections", "pgx, puddle", Source;
    }
}

table! {
    /// Functions in which servers wait for each commit to reach the disk. The meaning is the thing that an operator can
    /// change.
    SYNCING_COMMITS {
        "flushAppendOnlyFile*", "send several commands per sync (pipeline), or set appendfsync to everysec if the last second may be lost", "Redis", Live;
        "XLogFlush*", "change more rows per commit, or set synchronous_commit to off if the last commits may be lost", "PostgreSQL", Service;
        "ha_commit_trans*", "change more rows per commit, or relax innodb_flush_log_at_trx_commit and sync_binlog if the last commits may be lost", "MySQL, MariaDB", Service;
    }
}

table! {
    /// Functions that end a transaction.
    TRANSACTION_ENDS {
        "ha_commit*", "commit", "MySQL, MariaDB", Service;
        "ha_rollback*", "rollback", "MySQL, MariaDB", Service;
        "trans_commit*", "commit", "MySQL, MariaDB", Service;
        "trans_rollback*", "rollback", "MySQL, MariaDB", Service;
    }
}

table! {
    /// Functions that read or write rows.
    ROW_ACCESS {
        "handler::ha_*", "storage engine's handler", "MySQL, MariaDB", Service;
    }
}
