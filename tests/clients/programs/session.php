<?php
// A session of PDO and of the older functions; each line is what it saw.
[$port, $password, $table] = array_slice($argv, 1);
$db = new PDO("pgsql:host=127.0.0.1;port=$port;dbname=cairn", "admin", $password);
$db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
function shown($value) { echo json_encode($value), "\n"; }

$put = $db->prepare("INSERT INTO $table (small, name, price, there) VALUES (?, ?, ?, ?)");
$put->execute([7, "é", "1.50", "t"]);
shown($db->lastInsertId());
shown($db->lastInsertId("{$table}_id_seq"));
shown($db->query("SELECT id, small, name, price, there FROM $table")->fetchAll(PDO::FETCH_NUM));
$found = $db->query("SELECT * FROM $table");
shown(array_map(fn($at) => $found->getColumnMeta($at)["native_type"], range(0, 4)));
$db->beginTransaction();
$db->exec("UPDATE $table SET small = 8 WHERE id = 1");
$db->rollBack();
shown($db->query("SELECT small FROM $table WHERE id = 1")->fetchColumn());
$db->pgsqlCopyFromArray($table, ["10\t5\tcopied\t2.5\tt\n"]);
shown($db->pgsqlCopyToArray($table, ";") !== false);
try {
    $db->exec("INSERT INTO $table (id) VALUES (1)");
} catch (PDOException $problem) {
    shown($problem->getCode());
}
$old = pg_connect("host=127.0.0.1 port=$port dbname=cairn user=admin password=$password");
shown(pg_insert($old, $table, ["id" => 77, "small" => 3, "name" => "old"]) !== false);
shown(pg_select($old, $table, ["id" => 77])[0]["name"]);
