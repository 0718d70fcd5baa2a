CREATE TABLE IF NOT EXISTS shop_orders (
    id INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL,
    placed DATETIME NOT NULL
);
CREATE TABLE IF NOT EXISTS orders_per_minute (
    customer TEXT NOT NULL,
    minute DATETIME NOT NULL,
    orders INTEGER NOT NULL,
    cents INTEGER NOT NULL,
    PRIMARY KEY (customer, minute)
) DISTRIBUTED BY (customer);
