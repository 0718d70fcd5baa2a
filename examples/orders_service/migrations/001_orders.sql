CREATE TABLE orders (
    customer TEXT NOT NULL,
    id UUID NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (customer, id)
) DISTRIBUTED BY (customer);
CREATE TABLE order_lines (
    customer TEXT NOT NULL,
    order_id UUID NOT NULL,
    item TEXT NOT NULL,
    quantity INT NOT NULL,
    PRIMARY KEY (customer, order_id, item)
) DISTRIBUTED BY (customer);
