// A session of pgx and of lib/pq, which are strict about types; each line is what it saw.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	_ "github.com/lib/pq"
)

func must(problem error) {
	if problem != nil {
		fmt.Println("FAILED", problem)
		os.Exit(1)
	}
}

func main() {
	dsn, table := os.Args[1], os.Args[2]
	all := context.Background()
	db, problem := pgx.Connect(all, dsn)
	must(problem)
	put := "INSERT INTO " + table + " (small, name, price, there) VALUES ($1, $2, $3, $4) RETURNING id"
	var id int64
	must(db.QueryRow(all, put, int16(7), "é", "1.50", true).Scan(&id))
	var small int16
	var name string
	read := "SELECT small, name FROM " + table + " WHERE id = $1"
	must(db.QueryRow(all, read, id).Scan(&small, &name))
	fmt.Println(id, small, name)

	rows := [][]interface{}{}
	for at := 0; at < 5000; at++ {
		rows = append(rows, []interface{}{int64(1000 + at), int16(at), fmt.Sprint("copied ", at), at%2 == 0})
	}
	columns := []string{"id", "small", "name", "there"}
	count, problem := db.CopyFrom(all, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows))
	must(problem)
	fmt.Println(count)

	batch := &pgx.Batch{}
	batch.Queue("UPDATE "+table+" SET small = small + 1 WHERE id = $1", id)
	batch.Queue("SELECT count(*) FROM " + table)
	answers := db.SendBatch(all, batch)
	_, problem = answers.Exec()
	must(problem)
	must(answers.QueryRow().Scan(&count))
	must(answers.Close())
	fmt.Println(count)

	_, problem = db.Exec(all, "INSERT INTO "+table+" (id) VALUES (1)")
	said := problem.(*pgconn.PgError)
	fmt.Println(said.Code, said.TableName, said.ConstraintName)

	other, problem := sql.Open("postgres", dsn+"?sslmode=disable")
	must(problem)
	inside, problem := other.Begin()
	must(problem)
	lines, problem := inside.Prepare("COPY " + table + " (id, name) FROM STDIN")
	must(problem)
	for at := 0; at < 10; at++ {
		_, problem = lines.Exec(9000+at, "lib/pq")
		must(problem)
	}
	_, problem = lines.Exec()
	must(problem)
	must(lines.Close())
	must(inside.Commit())
	must(other.QueryRow("SELECT count(*) FROM "+table+" WHERE name = $1", "lib/pq").Scan(&count))
	fmt.Println(count)
}
